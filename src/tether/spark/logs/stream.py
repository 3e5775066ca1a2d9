"""Spark's stream as the engine sees it: its checkpoint, which can be cut, and the query's sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.ids import Epoch
from tether.spark.logs.checkpoint import SparkCheckpoint
from tether.spark.sinks import take_back

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.spark.sinks import Sink


class SparkStream:
    """See :class:`tether.engine.ports.Stream`.

    Args:
        checkpoint: Spark's checkpoint directory.
        sinks: Of the query.
    """

    def __init__(self, checkpoint: str, sinks: Iterable[Sink]) -> None:
        self._log, self._sinks = SparkCheckpoint(checkpoint), list(sinks)

    def check(self, read_from: Epoch) -> None:
        """Make sure that Spark can be taken back to an epoch."""
        self._log.check(read_from)

    def rows_of(self, epoch: Epoch) -> list[Any]:
        """Identifies the rows of an epoch, given the one before it."""
        return self._log.rows_of(epoch)

    def announce(self, read_from: Epoch) -> None:
        """Say durably what is about to be done."""
        self._log.announce(read_from)

    def announced(self) -> Epoch | None:
        """The epoch that an earlier driver was going back to when it died, if it was."""
        return self._log.announced()

    def take_back(self, epoch: Epoch) -> None:
        """Tell the sinks that output from this epoch on will be given again."""
        for sink in self._sinks:
            take_back(sink, epoch)

    def go_back(self, read_from: Epoch) -> None:
        """Let Spark's next epoch be ``read_from``, with the rows that it had."""
        self._log.go_back(read_from)

    def done(self) -> None:
        """Remove the announcement."""
        self._log.done()
