"""Items that come at the same time, from several producers, are taken in together.

While one producer's items are being made durable, those of others queue up. The next thread that comes
to the stream takes all of them in: it numbers them one after the other, makes them durable by one backup
where l asks for it, and only then acknowledges them. So with l = 0 the producers of a stream share the
disk's syncs: one sync covers all items that producers have sent during the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.protocols.items import BackUpItems, ItemsArrived, TakeItems, receive, take_next
from tether.sources.gateway.backlog import HeldRun

if TYPE_CHECKING:
    import pyarrow as pa

    from tether.sources.gateway.holding import HeldItems
    from tether.sources.gateway.messages import Ack


class Arrival:
    """A producer's rows that wait to be taken in, and what became of them.

    Args:
        producer: Its id.
        first: The producer's own number of the first row.
        rows: Of the stream's schema.
        session: The connection, where there is one.
    """

    __slots__ = ("count", "error", "first", "new", "producer", "rows", "session", "told")

    def __init__(
        self, producer: str, first: int, rows: pa.RecordBatch, session: int | None
    ) -> None:
        self.producer, self.first, self.rows, self.session = producer, first, rows, session
        self.count = rows.num_rows
        self.new = 0
        """Rows that had not come before."""
        self.told: Ack | None = None
        """What may be acknowledged now."""
        self.error: BaseException | None = None
        """Why nothing of them was taken in."""

    @property
    def done(self) -> bool:
        """Whether it was taken in or refused."""
        return self.told is not None or self.error is not None


class Together:
    """Arrivals that share one backup. The stream's lock is held from the first to ``settle``.

    Args:
        items: The stream's.
    """

    def __init__(self, items: HeldItems) -> None:
        self._items, self._state = items, items.state
        self._limit = items.account.limit
        self._runs: list[HeldRun] = []
        self._heard: list[tuple[str, int | None]] = []
        """What was heard of a producer before each of its arrivals."""
        self._due = False

    def take(self, arrival: Arrival) -> None:
        """Number what is new of an arrival, and hold it; it must not be acknowledged yet."""
        items, producer = self._items, arrival.producer
        known = items.heard.get(producer)
        if arrival.first == (known or 0) + 1:  # nothing of it has come before
            count, number = arrival.count, self._state.received + 1
            self._state, due = take_next(self._state, count, self._limit)
            self._due = self._due or due
            self._hold(arrival, HeldRun(number, producer, arrival.first, count, batch=arrival.rows))
            self._heard.append((producer, known))
            items.heard[producer] = arrival.first + count - 1
            return
        state = replace(self._state, heard=((producer, known or 0),))
        event = ItemsArrived(sender=producer, first=arrival.first, count=arrival.count)
        state, asked = receive(state, event, self._limit)
        for one in asked:
            if isinstance(one, TakeItems):
                new = arrival.rows.slice(one.skip) if one.skip else arrival.rows
                run = HeldRun(
                    one.first, producer, arrival.first + one.skip, new.num_rows, batch=new
                )
                self._hold(arrival, run)
            elif isinstance(one, BackUpItems):
                self._due = True
        self._heard.append((producer, known))
        items.heard[producer] = state.heard[0][1]
        self._state = state

    def _hold(self, arrival: Arrival, run: HeldRun) -> None:
        self._items.backlog.add(run)
        self._runs.append(run)
        arrival.new = run.count

    def settle(self) -> None:
        """Do all that was asked for: from now on every arrival may be acknowledged.

        Raises:
            StoreFailedError: The disk does not take what must be durable; nothing has happened then.
        """
        items, saved = self._items, False
        try:
            if self._due:
                items.save()
                saved = True
            for run in self._runs:
                saved = items.mark(run, saved=saved) or saved
        except BaseException:
            if not saved:
                self._undo()
            raise
        items.state = replace(self._state, heard=()) if self._state.heard else self._state
        if saved:
            items.note_saved()

    def _undo(self) -> None:
        for _ in self._runs:
            self._items.backlog.take_back()
        for producer, known in reversed(self._heard):
            if known is None:
                del self._items.heard[producer]
            else:
                self._items.heard[producer] = known
