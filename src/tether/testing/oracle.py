"""What a state holds, and how far two states are apart: by brute force, in exact arithmetic.

Slow and plain on purpose: it shares no code with what it judges.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tether.state.dense import Dense
from tether.state.norms import DURABLE
from tether.state.number import Number
from tether.state.objects import Object
from tether.state.sets import Set
from tether.state.slot import SlotState
from tether.state.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    import pyarrow as pa

    from tether.state.primitive import Primitive

Content = dict[Any, Any]
"""Values by column, by key; or an object's image by the name ``image``."""
Frame = dict[str, list["pa.RecordBatch"]]
"""Batches by primitive, as a backup holds them."""


def content(primitive: Primitive) -> Content:
    """Everything that a primitive holds, by key."""
    if isinstance(primitive, Number):
        return {(): {"value": primitive.value}}
    if isinstance(primitive, Dense):
        return {at: {"value": v} for at, v in enumerate(primitive.values.reshape(-1).tolist())}
    if isinstance(primitive, Object):
        return {"image": primitive.value.backup_state()}
    assert isinstance(primitive, (Set, Table))
    names = primitive.key_schema.names
    rows = (row for batch in primitive.batches() for row in batch.to_pylist())
    if isinstance(primitive, Set):
        return {_key(row, names): {"member": 1} for row in rows}
    return {_key(row, names): {c: v for c, v in row.items() if c not in names} for row in rows}


def contents(state: SlotState) -> dict[str, Content]:
    """Everything that a slot's state holds, by primitive."""
    return {name: content(state[name]) for name in state.specs()}


def _key(row: Mapping[str, Any], names: Iterable[str]) -> Hashable:
    return tuple(_hashable(row[name]) for name in names)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, float) and math.isnan(value):
        return "NaN"  # all of them are one key
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    return value  # type: ignore[no-any-return]


def distance(spec: Mapping[str, Any], live: Content, durable: Content) -> Fraction | float:
    """The divergence that a description asks for; its square for ``l2``. Not for objects.

    Example:
        >>> distance({"divergence": "l1"}, {0: {"n": 5}}, {0: {"n": 2}, 1: {"n": -4}})
        Fraction(7, 1)
    """
    norm = spec["divergence"]
    if norm == "count":
        return Fraction(len(live.keys() ^ durable.keys()))
    kinds = spec.get("values", {})
    flags = [name for name, kind in kinds.items() if kind == "uint8"]
    weights = spec.get("weights", {})
    starts = {
        name: float(text) if kinds[name] == "float64" else int(text)
        for name, text in spec.get("starts", {}).items()
    }
    terms = [Fraction(0)]
    for key in live.keys() | durable.keys():
        mine, theirs = live.get(key, {}), durable.get(key, {})
        for name in (mine or theirs).keys() - set(flags):
            absent = starts.get(name, 0)
            one, other = mine.get(name, absent), theirs.get(name, absent)
            weight = Fraction(weights.get(name, 1.0))
            if one != other and weight:
                if not (math.isfinite(one) and math.isfinite(other)):
                    return math.inf
                terms.append(weight * abs(Fraction(one) - Fraction(other)))
    if norm == "max":
        return max(terms)
    return sum((t * t if norm == "l2" else t for t in terms), Fraction(0))


def apart(one: Primitive, other: Primitive) -> float:
    """How far two primitives of one description are apart, in units of their divergence.

    What is weighed ``DURABLE`` is left out: it cannot be lost, and its weight is no measure.
    """
    if isinstance(one, Object):
        return float(one.value.state_divergence(content(other)["image"]))
    return between(one.spec, content(one), content(other))


def between(spec: Mapping[str, Any], one: Content, other: Content) -> float:
    """How far two contents are apart; see ``apart``.

    Example:
        >>> between({"divergence": "l2"}, {0: {"x": 3}, 1: {"x": 4}}, {})
        5.0
    """
    kept = {name: 0.0 for name, weight in spec.get("weights", {}).items() if weight >= DURABLE}
    weights = dict(spec.get("weights", {})) | kept
    found = distance({**spec, "weights": weights}, one, other)
    return math.sqrt(found) if spec["divergence"] == "l2" else float(found)


def never_too_small(primitive: Primitive, backup: Primitive) -> bool:
    """Whether a primitive's exact divergence covers its distance to what a recovery would give."""
    reported = primitive.divergence(exact=True)
    if isinstance(primitive, Object):
        image = content(backup)["image"]
        return reported >= float(primitive.value.state_divergence(image))
    spec = primitive.spec
    true = distance(spec, content(primitive), content(backup))
    if math.isinf(reported):
        return True
    told = Fraction(reported)
    return bool((told * told if spec["divergence"] == "l2" else told) >= true)


def recovered(declare: Callable[[SlotState], object], frames: Iterable[Frame]) -> SlotState:
    """A new state that was recovered from backups."""
    state = SlotState.heap()
    declare(state)
    state.begin_restore()
    for frame in frames:
        state.restore(frame)
    state.finish_restore(0)
    return state
