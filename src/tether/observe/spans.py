"""Backups, restores, snapshots and twins as OpenTelemetry spans (extra ``spans``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.errors import TetherError
from tether.observe.facts import Told

if TYPE_CHECKING:
    from tether.observe.facts import Fact
    from tether.observe.feed import Feed
    from tether.observe.story import Event

BEGIN_AND_END = {"twin": "taken-over"}
"""Events that begin something, and those that end it."""
ENDS_BADLY = {"twin-lost": "twin"}


class Spans:
    """Gives a span for everything that takes time; made by ``trace``."""

    def __init__(self, feed: Feed, tracer: Any) -> None:
        self._feed, self._tracer = feed, tracer
        self._open: dict[str, Any] = {}

    def take(self, fact: Fact) -> None:
        """A fact of the feed."""
        if not isinstance(fact, Told):
            return
        event: Event = fact.event
        if event.what in ("backup", "recovery"):
            self._whole(event)
        elif event.what in BEGIN_AND_END:
            self._open[event.what] = self._begin(event, event.at)
        for begun, ends in BEGIN_AND_END.items():
            if event.what == ends or ENDS_BADLY.get(event.what) == begun:
                span = self._open.pop(begun, None)
                if span is not None:
                    span.set_attribute("tether.ended_by", event.what)
                    span.end(_nanoseconds(event.at))

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
