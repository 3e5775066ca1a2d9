"""One stream of a gateway: numbers items, holds them for readers, makes them durable when it must.

All decisions are the item protocol's (``tether.protocols.items``, ``tether.protocols.lost_items``);
``holding`` carries them out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.protocols.items import PunctuationArrived
from tether.protocols.lost_items import came_again
from tether.sources.gateway.arriving import Arrival, Together
from tether.sources.gateway.backlog import batches, together
from tether.sources.gateway.census import Census, entered, left, share_of_losses, share_of_unacked
from tether.sources.gateway.errors import (
    BusyError,
    GatewayError,
    StoreFailedError,
    WrongSequenceError,
)
from tether.sources.gateway.holding import HeldItems
from tether.sources.gateway.messages import (
    Ack,
    CommitNote,
    Hello,
    StreamStatus,
    Welcome,
    finite,
    infinite,
)
from tether.sources.gateway.records import Account, Entry, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from tether.protocols.lost_items import LostItems
    from tether.sources.gateway.config import GatewayConfig

ANONYMOUS = "-"
"""The name of producers that send without an id. Rows that they send again are counted again."""
LARGEST = 10**18
"""Largest number of a row: what 64 bits hold, and some room above it."""
ROOM_SECONDS = 0.2
"""How often a producer that waits for room looks whether it is still connected."""


class GatewayStream:
    """Items of one stream. Safe to use from many threads.

    Guarantee: at most l acknowledged items are neither processed nor durable at any moment; no item is
    taken in twice; what was shown to a reader under a number is never another item later.

    Args:
        name: Of the stream.
        schema: Of its rows.
        folder: Of its log.
        config: The gateway's settings.
        store: Id of the store.
    """

    def __init__(
        self, name: str, schema: pa.Schema, folder: Path, config: GatewayConfig, store: str
    ) -> None:
        self.name, self.schema = name, schema
        self._config, self._store = config, store
        self._census = Census()
        self._doorstep: deque[Arrival] = deque()
        """What has come and is not taken in yet."""
        self._items = HeldItems(folder, config, self._allowed)
        self._shown = self._items.log.facts.shown

    @property
    def lost(self) -> LostItems | None:
        """What the restart found lost."""
        return self._items.lost

    @property
    def counts(self) -> dict[str, int]:
        """What this process has done."""
        return {**self._items.counts, "saves": self._items.saver.saves}

    # ---- producers -------------------------------------------------------------------------------

    def hello(self, hello: Hello, producer: str) -> tuple[Welcome, int]:
        """A producer connects; gives what it must know, and a number that names the connection."""
        with self._items.lock:
            self._check_open()
            gamma = min(infinite(hello.max_unacked), self._gamma())
            if hello.producer:
                account = entered(self._items.account, producer, hello, gamma)
                if account != self._items.account:
                    self._items.adopt(account)
            session = self._census.enter(producer)
            welcome = Welcome(
                producer=producer,
                heard=self._items.heard.get(producer, 0),
                max_unacked=finite(gamma),
            )
            return welcome, session

    def goodbye(self, producer: str, session: int, *, in_good_order: bool) -> None:
        """A producer's connection has ended."""
        with self._items.lock:
            self._census.leave(producer, session)
            if (
                in_good_order
                and not self._items.stopping
                and producer in self._items.account.producers
            ):
                self._items.adopt(left(self._items.account, producer))

    def put(
        self,
        producer: str,
        first: int,
        rows: pa.RecordBatch,
        *,
        session: int | None = None,
        wait: Callable[[], bool] | None = None,
    ) -> Ack:
        """Take a batch in; when this returns it may be acknowledged.

        Args:
            producer: Its id.
            first: The producer's own number of the first row.
            rows: Of the stream's schema.
            session: The connection, where there is one.
            wait: Where there is no room: asked now and then whether to go on waiting. Without it
                ``BusyError`` is raised.
        """
        mine = Arrival(producer, first, rows, session)
        self._doorstep.append(mine)
        try:
            with self._items.lock:
                while not mine.done:  # or somebody else has taken it in
                    self._await_room(wait)
                    self._take_in()
        except BaseException:
            self._withdraw(mine)
            raise
        if mine.error is not None:
            raise mine.error
        assert mine.told is not None
        return mine.told

    def _withdraw(self, mine: Arrival) -> None:
        """Let nobody take it in any more."""
        while mine in tuple(self._doorstep):
            try:
                self._doorstep.remove(mine)
            except (ValueError, IndexError):  # a reader has taken it, or has just arrived
                continue

    def _take_in(self) -> None:
        """Take in all that has come meanwhile; one backup serves all of it."""
        items, come, coming = self._items, list[Arrival](), 0
        while self._doorstep:
            come.append(one := self._doorstep.popleft())
            coming += one.count
        try:
            items.make_room(coming)
            together = Together(items)
            taken = [one for one in come if self._may_come(one, together)]
            together.settle()
        except BaseException as error:
            for one in come:
                one.error = one.error or error
            raise
        counts = items.counts
        for one in taken:
            known = one.count - one.new
            counts["rows"] += one.new
            counts["batches"] += one.count > 0
            counts["duplicates"] += known
            heard = items.heard.get(one.producer, 0)
            one.told = Ack(ack_up_to_offset=heard, rows=one.new, duplicates=known)
        items.ask_for_room()

    def _may_come(self, one: Arrival, together: Together) -> bool:
        """Number the rows of an arrival, or refuse them."""
        try:
            self._check_open()
            self._census.check(one.producer, one.session)
            if not one.count:
                return True
            if one.producer == ANONYMOUS:
                one.first = self._items.heard.get(ANONYMOUS, 0) + 1
            else:
                self._check_sequence(one.producer, one.first)
            together.take(one)
        except Exception as error:
            one.error = error
            return False
        return True

    def put_boundary(
        self, producer: str, first: int, time: float, session: int | None = None
    ) -> Ack:
        """A producer says that nothing older than a time will come; durable when this returns."""
        with self._items.lock:
            self._check_open()
            self._census.check(producer, session)
            self._check_sequence(producer, first)
            self._items.take_boundary(PunctuationArrived(sender=producer, first=first), time)
            return Ack(ack_up_to_offset=self._items.heard[producer])

    def _check_open(self) -> None:
        if self._items.stopping:
            raise BusyError("The gateway is being stopped.", do="Send again when it is back.")

    def _check_sequence(self, producer: str, first: int) -> None:
        heard = self._items.heard.get(producer, 0)
        losses = self._items.account.losses
        if not losses and 1 <= first <= heard + 1:
            return
        waiting = [at for at, loss in enumerate(losses) if producer in loss.gaps]
        if not 1 <= first <= LARGEST:
            raise WrongSequenceError(
                f"The number {first} of the producer {producer!r} is not one.",
                why=f"A producer numbers its rows from 1, and at most to {LARGEST}.",
                do="Send the number of the batch's first row.",
            )
        if first <= heard + 1 and not waiting:
            return
        going_on = first <= heard + 1
        at = waiting[-1] if waiting else len(losses) - 1
        if at >= 0 and (waiting or not losses[at].known):
            changed, allowed = came_again(losses[at], producer, heard, first)
            if allowed or going_on:
                account = replace(
                    self._items.account, losses=(*losses[:at], changed, *losses[at + 1 :])
                )
                # Both durable, or none: a producer whose gap is forgotten must not be asked for it.
                self._items.adopt(account, {} if going_on else {producer: first - 1})
                return
        self._items.counts["refused"] += 1
        raise WrongSequenceError(
            f"The producer {producer!r} sent its row {first}, but row {heard + 1} is next.",
            why="Rows in between have never come, so they would be lost without anybody's notice.",
            do=f"Send from {heard + 1} on; a new producer takes a new id and begins with 1.",
        )

    # ---- readers ---------------------------------------------------------------------------------

    def show(self) -> int:
        """The newest number that a reader may know; that it is known is durable."""
        with self._items.lock:
            newest = self._items.state.received
            if newest > self._shown and newest > self._items.log.facts.backed_up:
                durable = self._items.log.facts.heard
                heard = {p: n for p, n in self._items.heard.items() if durable.get(p, 0) < n}
                try:
                    self._items.append(Entry(shown=newest, heard=heard))
                except StoreFailedError:
                    return self._shown  # nothing new until there is room
            self._shown = max(newest, self._shown)
            return self._shown

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Rows with numbers from ``first`` to ``last``; those that were lost are left out.

        What is on disk is read as it is asked for: a slow reader holds no memory for it.
        """
        with self._items.lock:
            committed, received = self._items.state.processed, self._items.state.received
            if first <= committed or last > received:
                raise GatewayError(
                    f"Items {first} to {last} of {self.name!r} cannot be read.",
                    why=f"Those up to {committed} are gone, for all readers said that they have had "
                    f"them; the newest is {received}.",
                    do="A query must go on from its own checkpoint, and one that is begun again from "
                    "nothing must start at the oldest item that is left.",
                )
            runs = self._items.backlog.between(first, last)
        return together(batches(runs, first, last, self.schema))

    def commit(self, note: CommitNote) -> None:
        """A reader is past a number, or says what it allows; it becomes a reader if it is none yet."""
        with self._items.lock:
            if note.upto > (newest := self._items.state.received):
                raise GatewayError(
                    f"The reader {note.reader!r} cannot have processed item {note.upto}.",
                    why=f"The newest of {self.name!r} is {newest}.",
                    do="Check that it speaks of this gateway's store.",
                )
            known = self._items.account.readers.get(note.reader)
            here = self._items.state.processed
            reader = known or Reader(upto=here, since=here)
            allowed = {
                name: value
                for name in ("max_lost", "max_unacked")
                if (value := getattr(note, name)) is not None
            }
            reader = replace(reader, upto=max(reader.upto, note.upto), **allowed)
            before = self._items.account
            readers = {**before.readers, note.reader: reader}
            account = replace(before, readers=readers)
            account = replace(account, limit=self._allowed(account))
            # A larger l counts only once it is durable; and a reader must not be forgotten.
            changed = known is None or account.limit != before.limit
            if changed or any(getattr(known, name) != allowed[name] for name in allowed):
                if account.limit < before.limit and self._items.state.at_risk > account.limit:
                    self._items.save()
                    self._items.note_saved()
                self._items.adopt(account)
            else:
                self._items.account = account
            upto = min(one.upto for one in readers.values())
            if upto > self._items.state.processed:
                self._items.let_go(upto)
                self._items.mark_committed()
                self._items.lock.notify_all()

    def forget(self, reader: str) -> None:
        """A reader will never come back: its items need not be kept for it."""
        with self._items.lock:
            rest = {k: v for k, v in self._items.account.readers.items() if k != reader}
            self._items.adopt(replace(self._items.account, readers=rest))
            if rest:
                name, one = next(iter(rest.items()))
                self.commit(CommitNote(stream=self.name, reader=name, upto=one.upto))

    def status(self, *, show: bool = True) -> StreamStatus:
        """All that can be told.

        Args:
            show: Whether the newest items are shown, so that a reader may plan to read them.
        """
        shown = self.show() if show else self._shown
        with self._items.lock:
            self._items.catch_up()
            return StreamStatus(
                store=self._store,
                stream=self.name,
                received=self._items.state.received,
                shown=shown,
                committed=self._items.state.processed,
                backed_up=self._items.state.backed_up,
                at_risk=self._items.state.at_risk,
                limit=self._items.account.limit,
                failures=self._items.account.failures,
                losses=list(self._items.account.losses),
                gone=self._census.missing(self._items.account),
                readers=dict(self._items.account.readers),
                producers=self._census.connected,
                boundaries=list(self._items.log.facts.boundaries),
                schema=self.schema.serialize().to_pybytes().hex(),
            )

    @property
    def store_bytes(self) -> int:
        """Bytes on disk."""
        return self._items.log.nbytes

    @property
    def memory_bytes(self) -> int:
        """Bytes of items in memory."""
        return self._items.backlog.memory_bytes

    # ---- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End in good order: everything is durable, and the next gateway finds nothing lost."""
        self._items.close()

    def _await_room(self, wait: Callable[[], bool] | None) -> None:
        while self._items.log.nbytes > self._config.store_bytes:
            if wait is None or not wait():
                self._items.counts["refused"] += 1
                raise BusyError(
                    f"The gateway has no room for more items of {self.name!r}.",
                    why=f"Its store holds {self.store_bytes} bytes that readers have not processed.",
                    do="Send again later. If no query reads the stream any more, make the gateway "
                    "forget it; or raise --store-bytes.",
                )
            self._items.lock.wait(ROOM_SECONDS)

    def _allowed(self, account: Account) -> float:
        """l: half of L, of the gateway or of a reader that allows less, halved by every loss."""
        readers = account.readers.values()
        most = min([self._config.max_lost, *(reader.max_lost for reader in readers)])
        return share_of_losses(most, account.failures)

    def _gamma(self) -> float:
        readers = self._items.account.readers.values()
        most = min([self._config.max_unacked, *(reader.max_unacked for reader in readers)])
        return share_of_unacked(most, self._config.producers, len(self._items.account.died))
