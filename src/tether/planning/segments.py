"""The trees within a unit: what a structured plan grows by (PPA 2016 §IV-C1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.planning.trees import members

if TYPE_CHECKING:
    from collections.abc import Collection

    from tether.planning.model import Model, Part
    from tether.planning.streams import Flags

FEW = 4
"""Segments for each slot of a unit, beyond which they are not listed."""


def segments(model: Model, operators: Collection[str]) -> Flags:
    """The segments of a unit, as a column of flags each.

    A segment is a complete tree of the unit: it ends at a slot whose output leaves the unit, and
    begins at slots whose input comes from outside. Should a unit have very many, as where an operator
    joins streams that have one origin, its slots themselves stand for them.
    """
    parts = [part for part in model.parts if part.name in operators]
    slots = [1 << slot for part in parts for slot in part.numbers]
    trees: dict[int, list[int]] = {}
    found: list[int] = []
    for part in parts:
        for slot, below in zip(part.numbers, _below(part, operators, trees), strict=True):
            trees[slot] = [tree | 1 << slot for tree in below]
        if _leaves(model, part, operators):
            found += [tree for slot in part.numbers for tree in trees[slot]]
        if max(len(trees[slot]) for slot in part.numbers) > FEW * len(slots):
            return _columns(model, slots)
    return _columns(model, found if len(found) <= FEW * len(slots) else slots)


def _below(part: Part, operators: Collection[str], trees: dict[int, list[int]]) -> list[list[int]]:
    """For each slot the trees that end just before it; the empty one if its input is from outside."""
    inside = [stream for stream in part.streams if stream.link.source in operators]
    each = [
        [[tree for sender, _ in senders for tree in trees[sender]] for senders in stream.to_each()]
        for stream in inside
    ]
    starts_here = len(inside) < len(part.streams) or bool(part.outside.any()) or not inside
    found = []
    for at in range(len(part.numbers)):
        below = [0] if part.correlated or starts_here else []
        for stream in each:
            more = stream[at]
            below = (
                [one | other for one in below for other in more]
                if part.correlated
                else below + more
            )
        found.append(list(dict.fromkeys(below)))
    return found


def _leaves(model: Model, part: Part, operators: Collection[str]) -> bool:
    """Whether an operator's output leaves the unit."""
    onward = [
        other.name
        for other in model.parts
        for stream in other.streams
        if stream.link.source == part.name
    ]
    return bool(model.ends[part.slots.start]) or any(name not in operators for name in onward)


def _columns(model: Model, trees: list[int]) -> Flags:
    flags = np.zeros((model.size, len(trees)), bool)
    for column, tree in enumerate(trees):
        flags[members(tree), column] = True
    return flags
