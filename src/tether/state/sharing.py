"""Spending one target for the divergence among several primitives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tether.state.primitive import Export, Primitive

_ROUNDED_DOWN = 1 - 2.0**-50


def export_shared(
    primitives: Iterable[Primitive],
    target: float,
    take: Callable[[Primitive, float], Export],
) -> dict[str, Export]:
    """Bring the sum of the primitives' divergences to at most ``target``, cheaply.

    The target is shared in proportion to the divergences, none of which can use more than all of it
    (some may be infinite). Primitives with the fewest entries to write go first, and what they
    leave of their share goes to the others. So a single number that has drifted far is written
    before many entries that drifted little.

    Args:
        primitives: Those that share it.
        target: Largest sum of divergences that may remain.
        take: Makes one primitive's export for its share of the target.

    Returns:
        By name, the exports that hold something.
    """
    order = sorted(primitives, key=lambda primitive: primitive.dirty_entries())
    now = {primitive.name: primitive.divergence(exact=True) for primitive in order}
    exports: dict[str, Export] = {}
    if math.isinf(target):
        return exports
    everything = target <= 0
    for primitive in order:
        wanted = {name: min(divergence, target) for name, divergence in now.items()}
        mine, left = wanted[primitive.name], math.fsum(wanted.values())
        if not now.pop(primitive.name) and not everything:
            continue  # what the others leave of the target may be 0, and would ask for all of it
        share = target
        if 0 < mine < left:
            share = target * (mine / left) * _ROUNDED_DOWN  # shares never exceed the target
        export = take(primitive, share)
        if export.batches:
            exports[primitive.name] = export
        target = _less(target, export.divergence_after)
    return exports


def _less(target: float, spent: float) -> float:
    """The rest of a target, rounded such that both together do not exceed it."""
    left = max(target - spent, 0.0)
    return math.nextafter(left, 0.0) if left + spent > target else left
