"""Minimal complete trees: the sets of slots that make output together (PPA 2016 §III-B, Def. 1).

A tree is a slot of the sink with, for every slot in it, a sender: one of all where its inputs are
independent, one of each stream where they are correlated. When every slot without a copy is lost, a
metric is a sum over trees: each adds its weight if all its slots have a copy, and else nothing. That
is what makes the best plan a linear programme.

Inside, a set of slots is a whole number with a bit for each slot.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.core.errors import BadValueError
from tether.planning.model import model_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.core.graph import SlotId
    from tether.planning.model import Model, Part
    from tether.planning.topology import Topology

MOST_TREES = 200_000
"""Largest number of trees that are listed: with more, the problem could not be solved."""

Trees = dict[int, float]
"""Sets of slots, with their weights."""


def complete_trees(topology: Topology, *, most: int = MOST_TREES) -> tuple[frozenset[SlotId], ...]:
    """All minimal complete trees, each as the set of its slots.

    Args:
        topology: The topology.
        most: How many may be listed. Their number multiplies along the links.

    Raises:
        BadValueError: There are more.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> topology = Topology((Node("a", 2, rates=1.0), Node("b")), (Link("a", "b"),))
        >>> [[tuple(slot) for slot in sorted(tree)] for tree in complete_trees(topology)]
        [[('a', 0), ('b', 0)], [('a', 1), ('b', 0)]]
    """
    model = model_of(topology)
    return tuple(
        frozenset(model.slots[number] for number in members(tree))
        for tree in weighted_trees(model, most=most)
    )


def count_trees(topology: Topology) -> int:
    """How many minimal complete trees there are, without listing them (PPA 2016 §IV-A).

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> nodes = tuple(Node(name, 100, rates=1.0) for name in "abc")
        >>> count_trees(Topology(nodes, (Link("a", "b"), Link("b", "c"))))
        1000000
    """
    return tree_count(model_of(topology))


def smallest_tree(topology: Topology) -> int:
    """Slots of the smallest complete tree: with fewer copies than this there is no output at all.

    Where an operator joins streams that come from the same slots, it may be one or more too large:
    the smallest union of trees is as hard to find as the best plan.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> nodes = (Node("a", 2, rates=1.0), Node("b", 2, rates=1.0), Node("c", 2, "correlated"))
        >>> smallest_tree(Topology(nodes, (Link("a", "c"), Link("b", "c"))))
        3
    """
    model = model_of(topology)
    best: list[int] = [1 << number for number in range(model.size)]
    for part in model.parts:
        for slot, streams in _senders(part):
            trees = [[best[sender] for sender, _ in stream.senders] for stream in streams]
            if part.correlated:
                for stream in trees:
                    best[slot] |= min(stream, key=lambda tree: (tree & ~best[slot]).bit_count())
            elif trees:
                best[slot] |= min(chain(*trees), key=int.bit_count)
    return min(best[number].bit_count() for number in np.flatnonzero(model.ends))


def tree_count(model: Model) -> int:
    """How many trees a model has, each as often as it can be chosen."""
    counts = np.ones(model.size, object)  # whole numbers of any size
    for part in model.parts:
        sums = [stream.total(counts) for stream in part.streams]
        if sums:
            counts[part.slots] = (np.prod if part.correlated else np.sum)(sums, axis=0)
    return int(counts[model.ends].sum())


def weighted_trees(model: Model, *, most: int = MOST_TREES) -> Trees:
    """All trees of a model with what they add to its value.

    Raises:
        BadValueError: There are more than ``most``.
    """
    number = tree_count(model)
    if number > most:
        raise BadValueError(
            f"The topology has {number:,} complete trees.",
            why=f"They are listed one by one only up to {most:,}.",
            do='Use the planner "structure-aware", which does not list them.',
        )
    found: list[Trees] = [{1 << slot: 1.0} for slot in range(model.size)]
    for part in model.parts:
        for slot, streams in _senders(part):
            if streams:
                grown = _joined(streams, found) if part.correlated else _united(streams, found)
                found[slot] = {tree | 1 << slot: weight for tree, weight in grown.items()}
    trees: Trees = {}
    for slot in np.flatnonzero(model.ends).tolist():
        _add(trees, found[slot], float(model.worth[slot]))
    return trees


class _Incoming(NamedTuple):
    """A stream as one slot gets it."""

    weight: float
    senders: list[tuple[int, float]]
    """The senders, each with its part of the stream."""


def _senders(part: Part) -> Iterator[tuple[int, list[_Incoming]]]:
    """Each slot of an operator with its streams."""
    each = [stream.to_each() for stream in part.streams]
    for at, slot in enumerate(range(part.slots.start, part.slots.stop)):
        streams = zip(part.streams, each, strict=True)
        yield slot, [_Incoming(float(one.weight[at]), to[at]) for one, to in streams]


def _united(streams: list[_Incoming], found: list[Trees]) -> Trees:
    trees: Trees = {}
    for stream in streams:
        for sender, mix in stream.senders:
            _add(trees, found[sender], mix * stream.weight)
    return trees


def _joined(streams: list[_Incoming], found: list[Trees]) -> Trees:
    trees: Trees = {0: 1.0}
    for stream in streams:
        both: Trees = {}
        for sender, mix in stream.senders:
            for tree, weight in trees.items():
                _add(both, found[sender], mix * weight, within=tree)
        trees = both
    return trees


def _add(trees: Trees, more: Trees, weight: float, *, within: int = 0) -> None:
    """Add trees, each united with ``within``, with their weights times ``weight``."""
    for tree, part in more.items():
        whole = tree | within
        trees[whole] = trees.get(whole, 0.0) + weight * part


def members(slots: int) -> list[int]:
    """The numbers of the slots in a set.

    Example:
        >>> members(0b1010)
        [1, 3]
    """
    return [number for number in range(slots.bit_length()) if slots >> number & 1]
