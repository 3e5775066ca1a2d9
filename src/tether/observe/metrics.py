"""The feed as OpenMetrics: one family a figure, one sample a query, operator or cause.

Slots get no samples of their own: a thousand of them would be a thousand time series. What matters of
them is summed up, and the page shows each.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    StateSetMetricFamily,
)
from prometheus_client.openmetrics import exposition as openmetrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.core import Metric

    from tether.observe.facts import EpochFigures
    from tether.observe.feed import Feed

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

GAUGES = {
    "tether_bound_promised": ("Largest error that the budget allows, ever", "promised"),
    "tether_bound_spent": ("Largest error that the answer can have now", "spent"),
    "tether_bound_at_risk": ("What the loss of every slot now would add", "at_risk"),
    "tether_bound_worst": ("Largest error if every slot were lost now", "worst"),
    "tether_bound_left": ("What is left of the budget", "left"),
    "tether_slot_fullness": (
        "Largest divergence of a slot as a share of its threshold",
        "fullness",
    ),
    "tether_resident_bytes": ("Resident state of all slots", "resident_bytes"),
    "tether_epoch": ("Number of the newest epoch", "epoch"),
    "tether_fidelity": ("Share of the input that the answer is made from", "fidelity"),
    "tether_twin_behind_epochs": ("Epochs that a healing twin is behind", "behind"),
    "tether_tentative_rows": ("Tentative rows given and not corrected yet", "tentative_rows"),
}
COUNTERS = {
    "tether_epochs": ("Epochs done", "epochs"),
    "tether_epoch_seconds": ("Time spent in epochs", "seconds"),
    "tether_rows_in": ("Rows taken in", "rows_in"),
    "tether_rows_out": ("Rows given out", "rows_out"),
    "tether_losses": ("Losses of a slot's resident state", "losses"),
    "tether_changed_entries": ("Entries of state that changed", "changed"),
}
STATES = ("stable", "tentative", "healing")


def families(feeds: Sequence[Feed]) -> Iterator[Metric]:
    """All families with the samples of these feeds."""
    told = [(feed, feed.query) for feed in feeds if feed.query is not None]
    known = [
        (feed, query.name, newest)
        for feed, query in told
        if (newest := feed.history.newest) is not None
    ]
    info = InfoMetricFamily("tether_query", "What a query is", labels=["query"])
    up = GaugeMetricFamily("tether_up", "Whether the query runs", labels=["query"])
    silent = GaugeMetricFamily(
        "tether_silent_seconds", "Time since the query's last word", labels=["query"]
    )
    slots = GaugeMetricFamily("tether_slots", "Slots", labels=["query", "operator"])
    for feed, query in told:
        name = query.name
        facts = {"door": query.door, "policy": query.policy, "version": query.version}
        info.add_metric([name], {**facts, "id": query.id, "run": query.run})
        up.add_metric([name], float(feed.ended is None))
        silent.add_metric([name], max(0.0, time.time() - feed.heard_at))
        for one in query.operators:
            slots.add_metric([name, one.name], one.slots)
    yield from (info, up, silent, slots)
    yield from _gauges([(name, newest) for _, name, newest in known])
    yield from _counters([(name, feed) for feed, name, _ in known])


def _gauges(known: Sequence[tuple[str, EpochFigures]]) -> Iterator[Metric]:
    for name, (text, field) in GAUGES.items():
        family = GaugeMetricFamily(name, text, labels=["query"])
        for query, newest in known:
            value = getattr(newest, field)
            family.add_metric([query], math.inf if value is None else float(value))
        yield family
    states = StateSetMetricFamily("tether_answer", "Kind of the newest answer", labels=["query"])
    for query, newest in known:
        states.add_metric([query], {one: newest.state == one for one in STATES})
    yield states


def _counters(known: Sequence[tuple[str, Feed]]) -> Iterator[Metric]:
    for name, (text, field) in COUNTERS.items():
        family = CounterMetricFamily(name, text, labels=["query"])
        for query, feed in known:
            family.add_metric([query], getattr(feed.history.total, field))
        yield family
    backups = CounterMetricFamily("tether_backups", "Backups written", labels=["query", "cause"])
    written = CounterMetricFamily(
        "tether_backup_bytes", "Bytes of backups and logged rows", labels=["query", "cause"]
    )
    exact = CounterMetricFamily(
        "tether_exact_bytes",
        "Bytes that writing every change in its epoch would have come to, about",
        labels=["query"],
    )
    failures = CounterMetricFamily("tether_failures", "Failures survived", labels=["query"])
    for name, feed in known:
        total = feed.history.total
        for cause, number in total.backups.items():
            backups.add_metric([name, cause], number)
        for cause, size in total.backup_bytes.items():
            written.add_metric([name, cause], size)
        exact.add_metric([name], total.changed * total.entry_bytes)
        failures.add_metric([name], len(feed.failures))
    yield from (backups, written, exact, failures)


class _Once:
    """A collector of what is there already."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._feeds = feeds

    def collect(self) -> Iterator[Metric]:
        return families(self._feeds)


def exposition(feeds: Sequence[Feed]) -> bytes:
    """All samples as text, in the format of OpenMetrics."""
    return bytes(openmetrics.generate_latest(_Once(feeds)))  # type: ignore[no-untyped-call]
