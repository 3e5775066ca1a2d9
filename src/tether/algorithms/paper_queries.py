"""The two queries that PPA 2016 measures with, whole (§VI-B, fig. 11): top-k, and incidents.

Each is a list of steps, which ``as_stream`` makes a query on Spark of. The same steps, as stages of a
``LocalPipeline``, run in one process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import tether
from tether.algorithms.incidents import DistinctIncidents, JamDetector, JamReport, SegmentSpeeds
from tether.algorithms.top_k import SliceCounts, TopK, WindowCounts
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from tether.operator import Operator
    from tether.spark.stream import Stream


class Step(NamedTuple):
    """An operator of a query, and where its rows come from."""

    operator: Operator
    key: tuple[str, ...]
    slots: int
    inputs: tuple[str, ...]
    """Names of sources and of operators."""


def top_k_steps(
    *, k: int = 100, pane: float = 10.0, panes: int = 6, slots: tuple[int, int] = (8, 4)
) -> list[Step]:
    """Q1: the k most frequent ``url`` of a sliding window over requests, in a hierarchy.

    Requests (``time``, ``server``, ``url``) go to slots by their server; there they are counted in
    slices. Slots of the second operator each merge those of a part of the servers; the last one
    merges all. Its input is "requests". The first two have the same key, so with numbers of slots of
    which one divides the other they are connected by a merge.

    Args:
        k: How many.
        pane: Seconds by which the window slides.
        panes: Panes in the window.
        slots: Of the first and the second operator.
    """
    _check_slots(slots)
    # A list of each server's own favourites, long enough that what is cut off adds up to little.
    return [
        Step(
            SliceCounts(["server", "url"], time="time", pane=pane),
            ("server",),
            slots[0],
            ("requests",),
        ),
        Step(WindowCounts(k=10 * k, panes=panes), ("server",), slots[1], ("slice_counts",)),
        Step(TopK(k, item="url"), (), 1, ("window_counts",)),
    ]


def incident_steps(
    *,
    window: int = 300,
    slide: int = 10,
    jam_speed: float = 20.0,
    slots: tuple[int, int] = (8, 4),
) -> list[Step]:
    """Q2: reported incidents that cause a traffic jam, from users' locations and their reports.

    Its inputs are "locations" and "reports", as ``tether.data`` makes them. Everything goes by the
    road segment, so speeds are connected to the join by a merge, incidents one to one.

    Args:
        window: Length of the window in seconds.
        slide: Seconds by which it slides.
        jam_speed: Below which mean speed there is a jam.
        slots: Of the operator of speeds; and of incidents, which is also that of the join.
    """
    _check_slots(slots)
    key = ("segment",)
    detector = JamDetector(window=window, slide=slide, jam_speed=jam_speed)
    return [
        Step(SegmentSpeeds(), key, slots[0], ("locations",)),
        Step(DistinctIncidents(), key, slots[1], ("reports",)),
        Step(detector, key, slots[1], ("segment_speeds", "distinct_incidents")),
        Step(JamReport(), (), 1, ("jam_detector",)),
    ]


def as_stream(steps: Sequence[Step], sources: Mapping[str, DataFrame]) -> Stream:
    """The query on Spark; its end is the last step.

    Args:
        steps: The steps, each after those it reads from.
        sources: DataFrames by name.
    """
    streams = {name: tether.stream(rows) for name, rows in sources.items()}
    for step in steps:
        first, *others = (streams[name] for name in step.inputs)
        united = first.union(*others) if others else first
        streams[step.operator.name] = united.apply(
            step.operator, key=list(step.key), parallelism=step.slots
        )
    return streams[steps[-1].operator.name]


def partitionings(steps: Sequence[Step]) -> dict[tuple[str, str], str]:
    """How the steps are connected, as ``Stream.topology`` takes it: where the key stays the same."""
    by_name = {step.operator.name: step for step in steps}
    found = {}
    for step in steps:
        for name in step.inputs:
            sender = by_name.get(name)
            if sender is None or not step.key or sender.key != step.key:
                continue
            kind = "merge" if sender.slots > step.slots else "one-to-one"
            found[name, step.operator.name] = kind
    return found


def _check_slots(slots: tuple[int, int]) -> None:
    if slots[0] < slots[1] or slots[1] < 1 or slots[0] % slots[1]:
        raise BadValueError(
            f"slots={slots}: the second number does not divide the first.",
            why="A slot sends to one slot of the next operator only if the numbers divide.",
            do="Give for example (8, 4).",
        )
