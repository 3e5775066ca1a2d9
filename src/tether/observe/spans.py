"""Backups, restores and twins as OpenTelemetry spans (extra ``spans``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.errors import TetherError
from tether.observe.facts import Ended, Told

if TYPE_CHECKING:
    from tether.observe.facts import Fact
    from tether.observe.feed import Feed
    from tether.observe.story import Event

ENDS_OF_A_TWIN = frozenset({"taken-over", "twin-lost", "no-twin"})
"""Events after which a twin is none any more."""


class Spans:
    """Gives a span for everything that takes time; made by ``trace``."""

    def __init__(self, feed: Feed, tracer: Any) -> None:
        self._feed, self._tracer = feed, tracer
        self._twin: Any = None

    def take(self, fact: Fact) -> None:
        """A fact of the feed."""
        if isinstance(fact, Ended):
            self._end_twin(fact.how or "stopped", fact.at)
        if not isinstance(fact, Told):
            return
        event: Event = fact.event
        if event.what in ("backup", "recovery"):
            self._whole(event)
        elif event.what == "twin":
            self._end_twin("twin", event.at)
            self._twin = self._begin(event, event.at)
        elif event.what in ENDS_OF_A_TWIN:
            self._end_twin(event.what, event.at)

    def _end_twin(self, by: str, at: float) -> None:
        if self._twin is not None:
            self._twin.set_attribute("tether.ended_by", by)
            self._twin.end(_nanoseconds(at))
            self._twin = None

    def _whole(self, event: Event) -> None:
        """A span that is over: the event tells how long it took."""
        told = event.detail.get("seconds", 0.0)
        phases: dict[str, float] = told if isinstance(told, dict) else {"write": float(told or 0.0)}
        at = event.at - sum(phases.values())
        span = self._begin(event, at)
        for phase, seconds in phases.items():
            span.add_event(f"{phase} begins", {"tether.seconds": seconds}, _nanoseconds(at))
            at += seconds
        span.end(_nanoseconds(event.at))

    def _begin(self, event: Event, at: float) -> Any:
        query = self._feed.query
        attributes = {
            "tether.query": query.name if query else "",
            "tether.epoch": event.epoch,
            "tether.cause": event.cause,
            "tether.operator": event.operator,
            "tether.slot": event.slot,
        }
        for name in ("bytes", "entries", "bound", "allowed", "backup_epoch"):
            value = event.detail.get(name)
            if isinstance(value, int | float):
                attributes[f"tether.{name}"] = value
        name = {"recovery": "restore"}.get(event.what, event.what)
        return self._tracer.start_span(
            f"tether.{name}", attributes=attributes, start_time=_nanoseconds(at)
        )


def trace(feed: Feed, tracer: Any = None) -> Spans:
    """Give a span for every backup, restore and twin of a query from now on.

    Args:
        feed: Of the query: ``query.feed``.
        tracer: An OpenTelemetry tracer; by default that of the application's provider.

    Raises:
        TetherError: OpenTelemetry is not installed.
    """
    if tracer is None:
        try:
            from opentelemetry import trace as telemetry  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise TetherError(
                "Spans cannot be given.",
                why="OpenTelemetry is not installed.",
                do="Install it with: pip install 'tether[spans]'",
            ) from error
        tracer = telemetry.get_tracer("tether")
    spans = Spans(feed, tracer)
    feed.listen(spans.take)
    return spans


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
