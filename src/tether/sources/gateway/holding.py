"""The items of one stream, and what is asked for them.

It carries out what the item protocol asks for (``tether.protocols.items``): has items saved before they
are acknowledged where that is due, marks them, lets go of what is processed; ``arriving`` takes them in.
A lock orders everything. Beside it ``saving`` makes pending items durable early, so that a producer
seldom has to wait.
"""

from __future__ import annotations

import contextlib
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.protocols.items import (
    BackUpItems,
    BackUpPunctuation,
    DropItems,
    ItemsSaved,
    ReadyToProcess,
    StateSaved,
    receive,
)
from tether.sources.gateway.errors import StoreFailedError
from tether.sources.gateway.marks import MarkFile
from tether.sources.gateway.opening import resume
from tether.sources.gateway.records import Account, Boundary, Entry
from tether.sources.gateway.saving import Saver
from tether.sources.gateway.segments import SegmentLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tether.protocols.items import PunctuationArrived
    from tether.sources.gateway.backlog import HeldRun
    from tether.sources.gateway.config import GatewayConfig

NOTHING: Mapping[str, int] = MappingProxyType({})
EARLY = 0.25
"""Fraction of l that is saved at a time."""


class HeldItems:
    """What a stream holds. Methods are called with ``lock`` held, unless they say otherwise.

    Args:
        folder: Of the stream's log.
        config: The gateway's settings.
        allowed: Gives l for an account.
    """

    def __init__(
        self, folder: Path, config: GatewayConfig, allowed: Callable[[Account], float]
    ) -> None:
        self._config = config
        self.lock = threading.Condition()
        self.log, self.marks = SegmentLog(folder), MarkFile(folder / "marks")
        found = self.log.read()
        opened = resume(self.log, found, self.marks.read(self.log.facts.life))
        self.state, self.heard, self.backlog = opened.state, opened.heard, opened.backlog
        self.lost = opened.lost
        """What the restart found lost."""
        account = opened.entry.account or Account()
        self.account = replace(account, limit=allowed(account))
        life = self.log.facts.life + 1
        self.log.begin(replace(opened.entry, account=self.account, life=life))
        self.begin_marks()
        self.counts = {
            "rows": 0,
            "batches": 0,
            "duplicates": 0,
            "refused": 0,
            "waits": 0,
        }
        self.stopping = False
        self.saver = Saver(self.log, self._with_facts)

    def make_room(self, coming: int) -> None:
        """Items are about to come: where they would be too many, wait for those on their way to disk."""
        self.log.check_end()
        self.catch_up()
        limit = self.account.limit
        if self.state.at_risk + coming > limit and self.saver.busy:
            self.counts["waits"] += 1
            most = self.state.received + coming - limit
            self.saver.wait(lambda: self.log.facts.backed_up >= most)
            self.catch_up()

    def ask_for_room(self) -> None:
        """Items came: save all if memory is short, and begin to save them in time."""
        memory = self.backlog.memory_bytes
        if memory > 2 * self._config.memory_bytes:
            self.save()
            self.note_saved()
        if self.saver.free:
            waiting = self.saver.waiting(self.state.received, self.state.processed)
            if waiting > EARLY * self.account.limit or memory > self._config.memory_bytes:
                self.saver.hand_over(self.backlog.after)

    def catch_up(self) -> None:
        """Take note of what the saver has made durable."""
        if self.log.facts.backed_up > self.state.backed_up:
            self.note_saved()

    def close(self) -> None:
        """End in good order; called without the lock."""
        with self.lock:
            self.stopping = True
            self.save()
            self.append(Entry(heard=dict(self.heard), account=self.account, clean=True))
            self.log.close()
            self.marks.close()

    def take_boundary(self, event: PunctuationArrived, time: float) -> None:
        """Make a boundary durable, with all that came before it; nothing has happened if that fails."""
        producer = event.sender
        before = replace(self.state, heard=((producer, self.heard.get(producer, 0)),))
        state, asked = receive(before, event, self.account.limit)
        saved = False
        for one in asked:
            if isinstance(one, BackUpItems):
                self.save()
                saved = True
            elif isinstance(one, BackUpPunctuation):
                self.save(Boundary(one.number, producer, time))
                state, _ = receive(state, ItemsSaved(upto=one.number), 0)
                saved = True
        self.heard[producer] = state.heard[0][1]
        self.state = replace(state, heard=())
        if saved:
            self.note_saved()

    def let_go(self, upto: int) -> None:
        """Items up to a number are processed, and what they did to a state is durable."""
        for event in (ReadyToProcess(upto=upto), StateSaved()):
            self.state, asked = receive(self.state, event, self.account.limit)
            for one in asked:
                if isinstance(one, DropItems):
                    self.backlog.drop(one.upto)
                    self.log.drop(one.upto)

    def mark(self, run: HeldRun, *, saved: bool) -> bool:
        """Mark items before they are acknowledged; tells if they became durable instead."""
        try:
            if self.marks.full:
                self.begin_marks()
            self.marks.taken(run.producer, run.first, run.number, run.count)
        except OSError as error:
            if saved:
                return False
            # Where even a mark finds no room, nothing may be acknowledged that is not durable.
            try:
                self.save()
            except StoreFailedError as full:
                raise full from error
            return True
        return False

    def mark_committed(self) -> None:
        """Mark how far readers are. Without it a loss would be told as larger, never as smaller."""
        with contextlib.suppress(OSError):  # a full disk
            if self.marks.full:
                self.begin_marks()
            self.marks.committed(self.state.processed)

    def save(self, boundary: Boundary | None = None) -> None:
        """Make all items durable that are held, and a boundary after them."""
        self.counts["waits"] += 1
        entry = None
        if boundary is not None:
            heard = {boundary.producer: self._boundary_number(boundary)}
            entry = Entry(boundaries=(boundary,), heard=heard)
        self.saver.save(self.backlog.after(self.log.facts.backed_up), entry)

    def _with_facts(self, entry: Entry) -> Entry:
        """How far readers are, which may have changed without anybody waiting for it."""
        account = None if self.account is self.log.facts.account else self.account
        return replace(entry, committed=self.state.processed, account=account)

    def _boundary_number(self, boundary: Boundary) -> int:
        """A boundary takes up the next number of its producer's, too."""
        return self.heard.get(boundary.producer, 0) + 1

    def append(self, entry: Entry) -> None:
        """Make a fact durable that brings no items."""
        with self.saver.order:
            written = self.log.write(replace(entry, committed=self.state.processed))
        self.log.sync(written)

    def adopt(self, account: Account, heard: Mapping[str, int] = NOTHING) -> None:
        """Make an account durable, and then the one that counts.

        Args:
            account: The new one.
            heard: By producer, the newest number that must not be taken, where that changes with it.
        """
        entry = Entry(account=account, heard=dict(heard), committed=self.state.processed)
        with self.saver.order:  # or the saver could write the elder one after it
            self.log.append(entry)
            self.account = account
        self.heard.update(heard)

    def note_saved(self) -> None:
        """Items became durable: the machine knows, and memory may be given back."""
        upto = min(self.log.facts.backed_up, self.state.received)
        self.state, _ = receive(self.state, ItemsSaved(upto=upto), 0)
        if self.backlog.memory_bytes > self._config.memory_bytes:
            self.backlog.evict(self._config.memory_bytes // 2)

    def begin_marks(self) -> None:
        """Replace the marks by a short summary."""
        pending = self.backlog.after(max(self.log.facts.backed_up, self.state.processed))
        self.marks.begin(
            [run.marked() for run in pending],
            self.heard,
            committed=self.state.processed,
            received=self.state.received,
            life=self.log.facts.life,
        )
