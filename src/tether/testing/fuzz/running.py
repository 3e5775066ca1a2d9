"""Running a random program to its end, through all its lives, and letting the judge look at it."""

from __future__ import annotations

import email.parser  # noqa: F401 - this and others here once, not in every life
import gc
import os
import select
import shutil
import signal
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec.implementations.chained
import fsspec.implementations.local  # noqa: F401
import msgspec
import pandas  # noqa: F401, ICN001
import pyarrow.pandas_compat  # noqa: F401

from tether.testing.fuzz.judging import judged
from tether.testing.fuzz.life import Life, committed
from tether.testing.fuzz.operators import batch_of
from tether.testing.fuzz.spoiling import spoil
from tether.testing.fuzz.watching import waited

if TYPE_CHECKING:
    from tether.testing.fuzz.program import Program

LONGEST_ENDING_SECONDS = 600.0
"""Tasks of a dead driver end at once, but a machine may be busy."""
MOST_LIVES = 40
REFUSALS = ("QueryRefusedError", "ChangedProgramError", "BackupUnreadableError")
"""How a query says that it cannot go on with what is there."""


@dataclass
class Outcome:
    """How a program ended.

    Attributes:
        findings: What must not be; none, if all is well.
        looked: Answers that the judge has looked at.
        looseness: By how many times the bound was above the error, for answers that were wrong.
        epochs: Epochs that were committed.
        lives: Drivers that it took.
        struck: Points that were struck, with the action.
        ended: Why it did not come to its end, where that is in order.
        seconds: How long it took.
    """

    findings: list[str] = field(default_factory=list)
    looked: int = 0
    looseness: list[float] = field(default_factory=list)
    epochs: int = 0
    lives: int = 0
    struck: list[tuple[str, str]] = field(default_factory=list)
    ended: str = ""
    seconds: float = 0.0


def run(program: Program, scratch: Path | None = None) -> Outcome:
    """Run a program and judge it.

    Args:
        program: The program.
        scratch: Where directories are made; memory by default.
    """
    root = scratch or Path("/dev/shm")  # noqa: S108 - made for us alone below
    work = Path(tempfile.mkdtemp(prefix="tether-fuzz-", dir=root if root.is_dir() else None))
    began = time.perf_counter()
    try:
        outcome = _Run(program, work).go()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    outcome.seconds = time.perf_counter() - began
    return outcome


class _Run:
    def __init__(self, program: Program, work: Path) -> None:
        self._program, self._work = program, work
        self._rows = [batch_of(rows) for rows in program.epochs]
        # What is here stays as it is: a collection in a life would only copy all of its pages.
        gc.freeze()
        self._outcome = Outcome()
        self._policy, self._events, self._damaged = program.policy, 0, False

    def go(self) -> Outcome:
        outcome, entries = self._outcome, []
        for _ in range(MOST_LIVES):
            before = (committed(self._work), self._struck(), self._events)
            status = self._live()
            outcome.lives += 1
            entries = self._entries()
            last = entries[-1] if entries else {}
            if "done" in last:
                break
            self._catch_up(entries)
            if status == -signal.SIGALRM:
                outcome.findings.append("a driver hangs")
                break
            if self._over(last, status, before):
                break
        else:
            outcome.findings.append(f"it is not done after {MOST_LIVES} lives")
        outcome.epochs = committed(self._work) + 1
        outcome.struck = [
            (strike.point, strike.action)
            for number, strike in enumerate(self._program.strikes)
            if (self._work / f"strike-{number}").exists()
        ]
        judged(self._program, entries, outcome)
        return outcome

    def _over(self, last: dict[str, Any], status: int, before: tuple[int, int, int]) -> bool:
        """Whether there is no use in another life."""
        outcome = self._outcome
        error = last.get("refused") or last.get("failed")
        now = (committed(self._work), self._struck(), self._events)
        if now != before:
            return False  # it got on, or was struck
        if error and (self._damaged or (error in REFUSALS and self._changed())):
            # What is spoiled, or was kept under another policy, may be refused.
            outcome.ended = f"{error}: {last['text']}"
        elif error:
            outcome.findings.append(f"it does not get on: {error}: {last['text']}")
        else:
            outcome.findings.append(f"a driver died with status {status}, and nothing struck it")
        return True

    def _changed(self) -> bool:
        return self._policy != self._program.policy

    def _struck(self) -> int:
        return len(list(self._work.glob("strike-*"))) + len(list(self._work.glob("failed-*")))

    def _entries(self) -> list[dict[str, Any]]:
        log = self._work / "log"
        lines = log.read_bytes().splitlines() if log.exists() else []
        return [msgspec.json.decode(line) for line in lines]

    def _catch_up(self, entries: list[dict[str, Any]]) -> None:
        """Take note of events; do what only happens while no driver lives."""
        happened = max((one["event"] for one in entries if "event" in one), default=-1) + 1
        for event in self._program.events[self._events : happened]:
            if event.policy is not None:
                self._policy = event.policy
            if event.what == "damage":
                self._damaged = spoil(self._work, event) or self._damaged
        self._events = happened
        self._damaged = self._damaged or any(
            strike.action == "tear" and (self._work / f"strike-{number}").exists()
            for number, strike in enumerate(self._program.strikes)
        )

    def _live(self) -> int:
        """Let a driver live; its exit status, negative for a signal."""
        over, at_work = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(over)
            status = 1
            try:
                _quiet(self._work / "errors")
                Life(self._program, self._rows, self._work, self._policy, self._events).live()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(at_work)
        status = waited(pid)
        # Its tasks share its locks, and on a busy machine outlive it for a moment. All of them hold the
        # other end of the pipe.
        _ended(over)
        return status


def _ended(pipe: int) -> None:
    """Wait until nobody holds the other end of a pipe, but not for ever."""
    try:
        watch = select.poll()
        watch.register(pipe, select.POLLIN)
        watch.poll(1000 * LONGEST_ENDING_SECONDS)
    finally:
        os.close(pipe)


def _quiet(file: Path) -> None:
    """Let all that the process says go to a file."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
