"""One stream of a gateway: numbers items, holds them for readers, makes them durable when it must.

All decisions are the item protocol's (``tether.protocols.items``, ``tether.protocols.lost_items``); here
they are carried out. A lock orders everything. The one thing that happens beside it is the *saver*: it
begins to make pending items durable when half of l are at risk, so that a producer seldom has to wait.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.protocols.items import (
    Acknowledge,
    BackUpItems,
    BackUpPunctuation,
    DropItems,
    ItemsArrived,
    ItemsSaved,
    PunctuationArrived,
    ReadyToProcess,
    StateSaved,
    TakeItems,
    receive,
)
from tether.protocols.lost_items import came_again
from tether.sources.gateway.backlog import HeldRun, batches
from tether.sources.gateway.census import Census, entered, left, share_of_losses, share_of_unacked
from tether.sources.gateway.errors import (
    BusyError,
    GatewayError,
    StoreFailedError,
    WrongSequenceError,
)
from tether.sources.gateway.marks import ROLL_BYTES, MarkFile
from tether.sources.gateway.messages import (
    Ack,
    CommitNote,
    Hello,
    StreamStatus,
    Welcome,
    finite,
    infinite,
)
from tether.sources.gateway.opening import resume
from tether.sources.gateway.records import Account, Boundary, Entry, Reader, SavedRun
from tether.sources.gateway.segments import SegmentLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from tether.protocols.items import ReceiverEvent, ReceiverInstruction
    from tether.sources.gateway.config import GatewayConfig

EARLY = 0.5
"""Fraction of l at which the saver begins."""
ANONYMOUS = "-"
"""Who sends without an id: what it sends again counts again."""
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
        self._lock = threading.Condition()
        self._saving = threading.Lock()
        """Orders appends of items. Taken after ``_lock`` or without it, and released before it."""
        self._census = Census()
        self._log, self._marks = SegmentLog(folder), MarkFile(folder / "marks")
        found = self._log.read()
        opened = resume(self._log, found, self._marks.read())
        self._state, self._heard, self._backlog = opened.state, opened.heard, opened.backlog
        self.lost = opened.lost
        """What the restart found lost."""
        self._account = opened.entry.account or Account()
        self._account = replace(self._account, limit=self._allowed())
        self._shown = self._log.facts.shown
        self._log.begin(replace(opened.entry, account=self._account))
        self._begin_marks()
        self.counts = {
            "rows": 0,
            "batches": 0,
            "duplicates": 0,
            "refused": 0,
            "saves": 0,
            "waits": 0,
        }
        self._stopping = False
        self._wanted = threading.Event()
        self._saver = threading.Thread(target=self._save_early, name=f"save {name}", daemon=True)
        self._saver.start()

    # ---- producers -------------------------------------------------------------------------------

    def hello(self, hello: Hello, producer: str) -> tuple[Welcome, int]:
        """A producer connects; gives what it must know, and a number that names the connection."""
        with self._lock:
            self._check_open()
            gamma = min(infinite(hello.max_unacked), self._gamma())
            if hello.producer:
                account = entered(self._account, producer, hello, gamma)
                if account != self._account:
                    self._append(Entry(account=account))
                    self._account = account
            session = self._census.enter(producer)
            welcome = Welcome(
                producer=producer, heard=self._heard.get(producer, 0), max_unacked=finite(gamma)
            )
            return welcome, session

    def goodbye(self, producer: str, session: int, *, in_good_order: bool) -> None:
        """A producer's connection has ended."""
        with self._lock:
            self._census.leave(producer, session)
            if in_good_order and not self._stopping and producer in self._account.producers:
                account = left(self._account, producer)
                self._append(Entry(account=account))
                self._account = account

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
        count = rows.num_rows
        with self._lock:
            self._check_open()
            self._census.check(producer, session)
            self._await_room(wait)
            if not count:
                return Ack(ack_up_to_offset=self._heard.get(producer, 0))
            if producer == ANONYMOUS:
                first = self._heard.get(producer, 0) + 1
            else:
                self._check_sequence(producer, first)
            asked = self._step(ItemsArrived(sender=producer, first=first, count=count), rows)
            taken = next((one for one in asked if isinstance(one, TakeItems)), None)
            new = 0 if taken is None else taken.last - taken.first + 1
            self.counts["rows"] += new
            self.counts["batches"] += 1
            self.counts["duplicates"] += count - new
            if self._backlog.memory_bytes > 2 * self._config.memory_bytes:
                self._save()
                self._note_saved()
            if self._state.at_risk > EARLY * self._account.limit or self._crowded:
                self._wanted.set()
            return Ack(ack_up_to_offset=self._heard[producer], rows=new, duplicates=count - new)

    def put_boundary(
        self, producer: str, first: int, time: float, session: int | None = None
    ) -> Ack:
        """A producer says that nothing older than a time will come; durable when this returns."""
        with self._lock:
            self._check_open()
            self._census.check(producer, session)
            self._check_sequence(producer, first)
            self._step(PunctuationArrived(sender=producer, first=first), time=time)
            return Ack(ack_up_to_offset=self._heard[producer])

    def _check_open(self) -> None:
        if self._stopping:
            raise BusyError("The gateway is being stopped.", do="Send again when it is back.")

    def _check_sequence(self, producer: str, first: int) -> None:
        heard = self._heard.get(producer, 0)
        losses = self._account.losses
        waiting = [at for at, loss in enumerate(losses) if producer in loss.gaps]
        if first < 1:
            raise WrongSequenceError(
                f"The number {first} of the producer {producer!r} is not one.",
                why="A producer numbers its rows from 1.",
                do="Send the number of the batch's first row.",
            )
        if first <= heard + 1 and not waiting:
            return
        going_on = first <= heard + 1
        at = waiting[-1] if waiting else len(losses) - 1
        if at >= 0 and (waiting or not losses[at].known):
            changed, allowed = came_again(losses[at], producer, heard, first)
            if allowed or going_on:
                # Durable with the next entry: until then the larger figure stands.
                account = replace(self._account, losses=(*losses[:at], changed, *losses[at + 1 :]))
                self._account = account
                if first > heard + 1:
                    self._heard[producer] = first - 1
                return
        self.counts["refused"] += 1
        raise WrongSequenceError(
            f"The producer {producer!r} sent its row {first}, but row {heard + 1} is next.",
            why="Rows in between have never come, so they would be lost without anybody's notice.",
            do=f"Send from {heard + 1} on; a new producer takes a new id and begins with 1.",
        )

    # ---- readers ---------------------------------------------------------------------------------

    def show(self) -> int:
        """The newest number that a reader may know; that it is known is durable."""
        with self._lock:
            newest = self._state.received
            if newest > self._shown and newest > self._log.facts.backed_up:
                durable = self._log.facts.heard
                heard = {p: n for p, n in self._heard.items() if durable.get(p, 0) < n}
                try:
                    self._append(Entry(shown=newest, heard=heard))
                except StoreFailedError:
                    return self._shown  # nothing new until there is room
            self._shown = max(newest, self._shown)
            return self._shown

    def read(self, first: int, last: int) -> list[pa.RecordBatch]:
        """Rows with numbers from ``first`` to ``last``; those that were lost are left out."""
        with self._lock:
            committed, received = self._state.processed, self._state.received
            if first <= committed or last > received:
                raise GatewayError(
                    f"Items {first} to {last} of {self.name!r} cannot be read.",
                    why=f"Those up to {committed} are gone, for all readers said that they have had "
                    f"them; the newest is {received}.",
                    do="A query must go on from its own checkpoint, and one that is begun again from "
                    "nothing must start at the oldest item that is left.",
                )
            runs = self._backlog.between(first, last)
        return list(batches(runs, first, last, self.schema))

    def commit(self, note: CommitNote) -> None:
        """A reader is past a number, or says what it allows; it becomes a reader if it is none yet."""
        with self._lock:
            known = self._account.readers.get(note.reader)
            here = self._state.processed
            reader = known or Reader(upto=here, since=here)
            allowed = {
                name: value
                for name in ("max_lost", "max_unacked")
                if (value := getattr(note, name)) is not None
            }
            reader = replace(reader, upto=max(reader.upto, note.upto), **allowed)
            before, readers = self._account, {**self._account.readers, note.reader: reader}
            self._account = replace(before, readers=readers)
            try:
                self._account = replace(self._account, limit=self._allowed())
                # A larger l counts only once it is durable; and a reader must not be forgotten.
                changed = known is None or self._account.limit != before.limit
                if changed or any(getattr(known, name) != allowed[name] for name in allowed):
                    if (
                        self._account.limit < before.limit
                        and self._state.at_risk > self._account.limit
                    ):
                        self._save()
                        self._note_saved()
                    self._append(Entry(account=self._account))
            except StoreFailedError:
                self._account = before
                raise
            upto = min(one.upto for one in readers.values())
            if upto > self._state.processed:
                self._step(ReadyToProcess(upto=upto))
                self._step(StateSaved())
                self._marks.committed(self._state.processed)
                self._lock.notify_all()

    def forget(self, reader: str) -> None:
        """A reader will never come back: its items need not be kept for it."""
        with self._lock:
            rest = {k: v for k, v in self._account.readers.items() if k != reader}
            account = replace(self._account, readers=rest)
            self._append(Entry(account=account))
            self._account = account
            if rest:
                name, one = next(iter(rest.items()))
                self.commit(CommitNote(stream=self.name, reader=name, upto=one.upto))

    def status(self, *, show: bool = True) -> StreamStatus:
        """All that can be told.

        Args:
            show: Whether the newest items are shown, so that a reader may plan to read them.
        """
        shown = self.show() if show else self._shown
        with self._lock:
            return StreamStatus(
                store=self._store,
                stream=self.name,
                received=self._state.received,
                shown=shown,
                committed=self._state.processed,
                backed_up=self._state.backed_up,
                at_risk=self._state.at_risk,
                limit=self._account.limit,
                failures=self._account.failures,
                losses=list(self._account.losses),
                gone=self._census.missing(self._account),
                readers=dict(self._account.readers),
                producers=self._census.connected,
                boundaries=list(self._log.facts.boundaries),
                schema=self.schema.serialize().to_pybytes().hex(),
            )

    @property
    def store_bytes(self) -> int:
        """Bytes on disk."""
        return self._log.nbytes

    @property
    def memory_bytes(self) -> int:
        """Bytes of items in memory."""
        return self._backlog.memory_bytes

    # ---- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End in good order: everything is durable, and the next gateway finds nothing lost."""
        with self._lock:
            self._stopping = True
            self._wanted.set()
        self._saver.join()
        with self._lock:
            self._save()
            self._append(Entry(heard=dict(self._heard), account=self._account, clean=True))
            self._log.close()
            self._marks.close()

    # ---- carrying out ----------------------------------------------------------------------------

    def _step(
        self,
        event: ReceiverEvent,
        rows: pa.RecordBatch | None = None,
        time: float | None = None,
    ) -> tuple[ReceiverInstruction, ...]:
        """Take one event in and do all that it asks for; nothing has happened if that fails."""
        arrived = isinstance(event, ItemsArrived | PunctuationArrived)
        producer = event.sender if isinstance(event, ItemsArrived | PunctuationArrived) else ""
        before = self._state
        if arrived:
            before = replace(before, heard=((producer, self._heard.get(producer, 0)),))
        state, asked = receive(before, event, self._account.limit)
        run: HeldRun | None = None
        saved = False
        try:
            for one in asked:
                if isinstance(one, TakeItems) and rows is not None:
                    new = rows if not one.skip else rows.slice(one.skip)
                    first = event.first + one.skip  # type: ignore[union-attr]
                    run = HeldRun(one.first, producer, first, new.num_rows, batch=new)
                    self._backlog.add(run)
                elif isinstance(one, BackUpItems):
                    self._save()
                    saved = True
                elif isinstance(one, BackUpPunctuation):
                    assert time is not None
                    self._save(Boundary(one.number, producer, time))
                    state, _ = receive(state, ItemsSaved(upto=one.number), 0)
                    saved = True
                elif isinstance(one, DropItems):
                    self._backlog.drop(one.upto)
                    self._log.drop(one.upto)
                elif isinstance(one, Acknowledge) and run is not None:
                    saved = self._mark(run, saved=saved) or saved
        except BaseException:
            if run is not None and not saved:
                self._backlog.take_back()
            raise
        if arrived:
            self._heard[producer] = dict(state.heard)[producer]
            state = replace(state, heard=())
        self._state = state
        if saved:
            self._note_saved()
        return asked

    def _mark(self, run: HeldRun, *, saved: bool) -> bool:
        """Mark items before they are acknowledged; tells if they became durable instead."""
        if self._marks.size > ROLL_BYTES:
            self._begin_marks()
        try:
            self._marks.taken(run.marked())
        except OSError as error:
            if saved:
                return False
            # Where even a mark finds no room, nothing may be acknowledged that is not durable.
            try:
                self._save()
            except StoreFailedError as full:
                raise full from error
            return True
        return False

    def _save(self, boundary: Boundary | None = None) -> None:
        """Make all items durable that are held, and a boundary after them."""
        self.counts["waits"] += 1
        self._write(self._backlog.after(self._log.facts.backed_up), boundary, self._account)

    def _write(
        self,
        runs: list[HeldRun],
        boundary: Boundary | None = None,
        account: Account | None = None,
    ) -> None:
        with self._saving:
            runs = [run for run in runs if run.number > self._log.facts.backed_up]
            if not runs and boundary is None:
                return
            body = [run.batch.serialize() for run in runs if run.batch is not None]
            saved = tuple(
                SavedRun(run.number, run.producer, run.first, run.count, len(part))
                for run, part in zip(runs, body, strict=True)
            )
            heard = {} if boundary is None else {boundary.producer: self._boundary_number(boundary)}
            places = self._log.append(
                Entry(
                    runs=saved,
                    boundaries=() if boundary is None else (boundary,),
                    heard=heard,
                    committed=self._state.processed,
                    account=account,
                ),
                body,
            )
            self._backlog.saved(runs, places)
            self.counts["saves"] += 1

    def _boundary_number(self, boundary: Boundary) -> int:
        """A boundary takes up the next number of its producer's, too."""
        return self._heard.get(boundary.producer, 0) + 1

    def _append(self, entry: Entry) -> None:
        """Make a fact durable that brings no items."""
        with self._saving:
            self._log.append(replace(entry, committed=self._state.processed))

    def _note_saved(self) -> None:
        """Items became durable: the machine knows, and memory may be given back."""
        upto = min(self._log.facts.backed_up, self._state.received)
        self._state, _ = receive(self._state, ItemsSaved(upto=upto), 0)
        if self._backlog.memory_bytes > self._config.memory_bytes:
            self._backlog.evict(self._config.memory_bytes // 2)

    def _save_early(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            with self._lock:
                if self._stopping:
                    return
                runs = self._backlog.after(self._log.facts.backed_up)
            try:
                self._write(runs)
            except StoreFailedError:
                continue  # the producer that reaches l is told
            with self._lock:
                self._note_saved()

    def _begin_marks(self) -> None:
        pending = self._backlog.after(max(self._log.facts.backed_up, self._state.processed))
        self._marks.begin(
            [run.marked() for run in pending],
            self._heard,
            self._state.processed,
            self._state.received,
        )

    @property
    def _crowded(self) -> bool:
        return self._backlog.memory_bytes > self._config.memory_bytes

    def _await_room(self, wait: Callable[[], bool] | None) -> None:
        while self._log.nbytes > self._config.store_bytes:
            if wait is None or not wait():
                self.counts["refused"] += 1
                raise BusyError(
                    f"The gateway has no room for more items of {self.name!r}.",
                    why=f"Its store holds {self._log.nbytes} bytes that readers have not processed.",
                    do="Send again later. If no query reads the stream any more, make the gateway "
                    "forget it; or raise --store-bytes.",
                )
            self._lock.wait(ROOM_SECONDS)

    def _allowed(self) -> float:
        """l: half of L, of the gateway or of a reader that allows less, halved by every loss."""
        readers = self._account.readers.values()
        most = min([self._config.max_lost, *(reader.max_lost for reader in readers)])
        return share_of_losses(most, self._account.failures)

    def _gamma(self) -> float:
        readers = self._account.readers.values()
        most = min([self._config.max_unacked, *(reader.max_unacked for reader in readers)])
        return share_of_unacked(most, self._config.producers, len(self._account.died))
