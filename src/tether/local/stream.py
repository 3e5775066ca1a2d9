"""The input of a local query: rows of epochs, kept as long as they may be read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import TetherError
from tether.core.ids import Epoch, epoch_after, epoch_before

if TYPE_CHECKING:
    from tether.local.cluster import Feed


class LocalStream:
    """See :class:`tether.engine.ports.Stream`."""

    def __init__(self) -> None:
        self._feeds: dict[Epoch, Feed] = {}
        self._announced: Epoch | None = None
        self.next_epoch = Epoch(0)

    def add(self, feed: Feed) -> Epoch:
        """Add the rows of one more epoch; returns its number."""
        epoch = epoch_after(max(self._feeds, default=epoch_before(self.next_epoch)))
        self._feeds[epoch] = feed
        return epoch

    def feed(self, epoch: Epoch) -> Feed:
        """The rows of an epoch."""
        return self._feeds[epoch]

    def drop(self, epoch: Epoch) -> None:
        """Drop rows that could not be run; the next ones get this epoch's number."""
        self._feeds.pop(epoch, None)

    def committed(self, epoch: Epoch) -> None:
        """An epoch is committed: the next one follows."""
        self.next_epoch = epoch_after(epoch)

    def forget_before(self, epoch: Epoch) -> None:
        """Earlier epochs are never read again."""
        for old in [one for one in self._feeds if one < epoch]:
            del self._feeds[old]

    def check(self, read_from: Epoch) -> None:
        """Whether the rows are still there."""
        if read_from not in self._feeds and read_from != self.next_epoch:
            raise TetherError(
                f"The rows of epoch {read_from} are not kept any more.",
                why="They were dropped when a later snapshot was complete.",
                do="Please report it.",
            )

    def rows_of(self, epoch: Epoch) -> object:
        """The rows themselves."""
        return self._feeds[epoch]

    def announce(self, read_from: Epoch) -> None:
        """Note the announcement."""
        self._announced = read_from

    def announced(self) -> Epoch | None:
        """The announcement, if it has not been carried out."""
        return self._announced

    def take_back(self, epoch: Epoch) -> None:
        """Does nothing: output of epochs that are run again has not been used."""
        del epoch

    def go_back(self, read_from: Epoch) -> None:
        """Let the next epoch be this one."""
        self.next_epoch = read_from

    def done(self) -> None:
        """Remove the announcement."""
        self._announced = None
