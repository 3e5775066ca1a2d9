"""One line an epoch, into the log: for those who watch logs rather than pages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming import StreamingQueryListener

from tether.observe import running
from tether.observe.card import amount

if TYPE_CHECKING:
    from tether.observe.facts import EpochFigures

log = logging.getLogger("tether.epochs")


def line_of(name: str, figures: EpochFigures) -> str:
    """An epoch in one line.

    Example:
        >>> from tether.observe.facts import EpochFigures
        >>> line_of("q", EpochFigures(at=1, epoch=7, rows_in=5000, seconds=0.25, promised=100.0))
        'q epoch 7: 5,000 rows in 250 ms; wrong by at most 0 of 100, 0 if all died; no backup'
    """
    backups = ", ".join(f"{number} by {cause}" for cause, number in sorted(figures.backups.items()))
    size = sum(figures.backup_bytes.values())
    written = f"backups {backups} ({size:,} bytes)" if backups else "no backup"
    lost = f"; {figures.losses} slots lost their state" if figures.losses else ""
    return (
        f"{name} epoch {figures.epoch}: {figures.rows_in:,} rows in {figures.seconds * 1e3:.0f} ms; "
        f"wrong by at most {amount(figures.spent)} of {amount(figures.promised)}, "
        f"{amount(figures.worst)} if all died; {written}{lost}"
    )


class EpochLines(StreamingQueryListener):  # type: ignore[misc]
    """Logs a line for every epoch of every Tether query of a session, to ``tether.epochs``.

    Example:
        ::

            spark.streams.addListener(tether.EpochLines())
    """

    def __init__(self) -> None:
        self._told: dict[str, int] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        """Nothing to tell yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Tell all epochs of the query that were not told yet."""
        wanted = str(event.progress.id)
        for feed in running.feeds():
            if feed.query is not None and feed.query.id == wanted:
                last = self._told.get(feed.query.run, -1)
                for figures in feed.epochs()[-100:]:
                    if figures.epoch > last and figures.at >= feed.query.at:
                        log.info("%s", line_of(feed.query.name, figures))
                        self._told[feed.query.run] = figures.epoch

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """An idle stream has no epochs; the last one is told if it was not."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The story says how it ended."""
