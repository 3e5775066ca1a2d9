"""Event time: when rows happened, by their own account, in seconds since 1970."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tether.engine.messages import StreamClock

if TYPE_CHECKING:
    from collections.abc import Iterable

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


Span = tuple[float, float]
"""Oldest and newest event time, in seconds."""


def span_of(column: pa.Array) -> Span | None:
    """Oldest and newest timestamp of a column; None where there is none.

    Example:
        >>> span_of(pa.array([1_500_000, None, 250_000], pa.timestamp("us")))
        (0.25, 1.5)
    """
    ends = pc.min_max(column.cast(pa.int64())).as_py()
    if ends["min"] is None:
        return None
    unit = _PER_SECOND[column.type.unit]
    return ends["min"] / unit, ends["max"] / unit


def joined(*spans: Span | None) -> Span | None:
    """From the oldest to the newest of all.

    Example:
        >>> joined((3.0, 4.0), None, (1.0, 2.0))
        (1.0, 4.0)
    """
    known = [span for span in spans if span is not None]
    return (min(a for a, _ in known), max(b for _, b in known)) if known else None


def advance(clock: StreamClock, spans: Iterable[Span | None], lateness: float) -> StreamClock:
    """The clock after an epoch whose rows have these event times. It never goes back.

    Example:
        >>> clock = advance(StreamClock(), [(5.0, 30.0), None], lateness=10)
        >>> clock.newest, clock.watermark, clock.passed
        (30.0, 20.0, 5.0)
        >>> advance(clock, [(1.0, 25.0)], lateness=10).watermark
        20.0
    """
    seen = joined(*spans)
    if seen is None:
        return msgspec.structs.replace(clock, passed=clock.watermark)
    newest = max(seen[1], seen[1] if clock.newest is None else clock.newest)
    # At the start no window before those of the first rows has to be ended.
    passed = clock.watermark if clock.watermark is not None else seen[0]
    # A stored clock may contain the watermark without the event times that it was computed from.
    watermark = max(newest - lateness, -math.inf if clock.watermark is None else clock.watermark)
    return StreamClock(newest=newest, watermark=watermark, passed=passed)
