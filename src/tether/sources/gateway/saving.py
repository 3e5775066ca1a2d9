"""Making items durable while others come.

A sync is mostly waiting, however much it brings to the disk. So pending items are handed over in parts,
a quarter of l each, and several parts wait for the disk at a time: with l items allowed at risk and a
sync that takes t seconds, nearly l / t items a second become durable. Other threads pack, write and
wait; the thread that hands it over goes on. They never take the stream's lock, which producers that
send without a pause hardly leave to anybody.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.sources.gateway.backlog import packed_runs
from tether.sources.gateway.errors import StoreFailedError
from tether.sources.gateway.records import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.sources.gateway.backlog import HeldRun, PackedRuns
    from tether.sources.gateway.segments import SegmentLog, Written

AT_A_TIME = 3
"""Parts of one stream that wait for the disk at a time."""
_threads = ThreadPoolExecutor(2 * AT_A_TIME, thread_name_prefix="saver")
"""Shared by all streams, as they share the disk too."""


class Saver:
    """Writes the items of one stream to its log.

    Args:
        log: The log, opened.
        note: Adds to an entry what else is to be durable; called while entries are in order.
    """

    def __init__(self, log: SegmentLog, note: Callable[[Entry], Entry]) -> None:
        self.log, self._note = log, note
        self.order = threading.Lock()
        """Held while an entry is written: entries are in the order in which they are true."""
        self._flying = 0
        self._landed = threading.Condition()
        self._parts: deque[list[HeldRun]] = deque()
        """Handed over together and not written yet, in order."""
        self._handed = 0
        """Newest item that has been handed over."""
        self.saves = 0

    def waiting(self, received: int, processed: int) -> int:
        """How many items nobody takes care of yet."""
        return received - max(self._handed, self.log.written, processed)

    @property
    def busy(self) -> bool:
        """Whether parts are on their way to the disk."""
        return self._flying > 0

    @property
    def free(self) -> bool:
        """Whether one more part may be handed over."""
        return self._flying < AT_A_TIME

    def hand_over(self, after: Callable[[int], list[HeldRun]]) -> None:
        """Let all that nobody takes care of yet become durable soon; the caller goes on.

        Where the disk does not take them they stay as they are: who comes to l is told.

        Args:
            after: Gives the runs with numbers above one, in order.
        """
        with self._landed:
            runs = after(max(self._handed, self.log.written))
            if not runs:
                return
            self._parts.append(runs)
            self._handed = runs[-1].last
            self._flying += 1
        try:
            _threads.submit(self._carry)
        except RuntimeError:  # the interpreter is about to end, and starts no more threads
            self._carry()

    def wait(self, enough: Callable[[], bool]) -> None:
        """Wait while parts are on their way, until there is enough room."""
        with self._landed:
            self._landed.wait_for(lambda: not self._flying or enough())

    def save(self, runs: list[HeldRun], entry: Entry | None = None) -> None:
        """Make these durable, and an entry after them, before this returns.

        Args:
            runs: All that is not durable, in order.
            entry: What else is to be durable.

        Raises:
            StoreFailedError: The disk does not take them.
        """
        last = runs[-1].last if runs else 0
        try:
            if not self._save(runs, entry) and last > self.log.facts.backed_up:
                self.wait(lambda: self.log.facts.backed_up >= last)
                if self.log.facts.backed_up < last:
                    self._save(runs, Entry())  # what was being written has failed
        except StoreFailedError:
            self._forget_handed()
            raise

    def _save(self, runs: list[HeldRun], entry: Entry | None = None) -> bool:
        """Write what has not been written, and wait for it; tells whether there was anything."""
        with self.order:
            begin = self.log.written
            new = [run for run in runs if run.number > begin]
            if not new and entry is None:
                return False
            written, packed = self._write(new, entry or Entry())
        self._sync(new, written, packed)
        return True

    def _forget_handed(self) -> None:
        """The disk gave something up: what was handed over is handed over again, from the beginning."""
        with self._landed:
            self._parts.clear()
            self._handed = 0

    def _carry(self) -> None:
        """Take the oldest part to the disk."""
        try:
            with self.order:
                if not self._parts:
                    return  # one before it could not be written
                part = self._parts.popleft()
                begin = self.log.written
                new = [run for run in part if run.number > begin]
                if not new:
                    return  # another thread could not wait, and has written it
                written, packed = self._write(new, Entry())
            self._sync(new, written, packed)
        except StoreFailedError:  # it is not in the log, nor what came after it
            self._forget_handed()
        finally:
            with self._landed:
                self._flying -= 1
                self._landed.notify_all()

    def _write(self, runs: list[HeldRun], entry: Entry) -> tuple[Written, PackedRuns]:
        """Write runs, which the log refuses where it has given up what comes before them."""
        packed = packed_runs(runs)
        entry = replace(self._note(entry), runs=tuple(packed.saved))
        return self.log.write(entry, packed.body), packed

    def _sync(self, runs: list[HeldRun], written: Written, packed: PackedRuns) -> None:
        packed.placed(runs, self.log.sync(written))
        with self._landed:
            self.saves += 1
            self._landed.notify_all()
