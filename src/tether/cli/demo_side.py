"""One side of the demo as its parent sees it: started, watched, killed, started again, figures taken."""

from __future__ import annotations

import json
import queue
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tether.cli.demo_talk import EpochEnd
from tether.core.errors import TetherError
from tether.testing.processes import kill_all
from tether.testing.slow_store import requests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tether.cli.demo_talk import Side
    from tether.cli.demo_view import DemoView

SILENCE_SECONDS = 180.0
"""A job that says nothing for so long is taken for dead."""
WARM_UP = 3
"""Epochs of either side that do not count: Spark compiles what it runs."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one side did, all of it measured.

    Attributes:
        rows_per_second: By the median epoch before the kill, without the first ones.
        epoch_ms: That median.
        requests_per_epoch: To the store, until the kill.
        bytes_written: To the store, until all was counted.
        pause: Seconds from the kill on in which no epoch ended, at the longest.
        up_again: Seconds from the kill until Spark itself was there again: part of the pause.
        started: Unix seconds when the first epoch began.
        killed: Unix seconds of the kill.
        ends: Of all epochs.
    """

    rows_per_second: float
    epoch_ms: float
    requests_per_epoch: float
    bytes_written: int
    pause: float
    up_again: float
    started: float
    killed: float
    ends: list[EpochEnd]


def pause_after(killed: float, ends: Sequence[EpochEnd]) -> float:
    """Seconds from a kill until the next epoch ended; what was in hand is run again.

    Example:
        >>> pause_after(10.0, [EpochEnd(0, 9.8, 500), EpochEnd(1, 14.0, 900)])
        4.0
    """
    return min((one.at for one in ends if one.at > killed), default=killed) - killed


def figures(
    ends: list[EpochEnd],
    killed: float,
    up_again: float,
    rows: int,
    per_epoch: float,
    bytes_written: int,
) -> Figures:
    """The figures of a side.

    Args:
        ends: Of all its epochs, in their order.
        killed: Unix seconds of the kill.
        up_again: Seconds from there until Spark was up again.
        rows: Of an epoch.
        per_epoch: Requests to the store.
        bytes_written: To the store.
    """
    before = [one.ms for one in ends if one.at < killed]
    median = statistics.median(before[WARM_UP:] or before)
    return Figures(
        rows_per_second=rows / median * 1e3,
        epoch_ms=median,
        requests_per_epoch=per_epoch,
        bytes_written=bytes_written,
        pause=pause_after(killed, ends),
        up_again=up_again,
        started=ends[0].at - ends[0].ms / 1e3,
        killed=killed,
        ends=ends,
    )


class Job:
    """The process of one side. As a context manager it is ended whole.

    Args:
        side: What it is told.
        view: The screen.
    """

    def __init__(self, side: Side, view: DemoView) -> None:
        self.side, self._view = side, view
        self.work = Path(side.work)
        self.work.mkdir()
        self._log = self.work / "job.log"
        self.recoveries: list[dict[str, Any]] = []
        self._ends: dict[int, EpochEnd] = {}
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def next(self, *wanted: str) -> dict[str, Any]:
        """The next event of these kinds; what comes before it is shown.

        Raises:
            TetherError: The job has ended, or fallen silent.
        """
        for event in self._events:
            if event["event"] == "story":
                self._view.story(event)
                if event["what"] == "recovery":
                    self.recoveries.append(event["detail"])
            if event["event"] in wanted:
                return event
        raise TetherError(
            f"The demo's job ({self.side.name}) ended by itself.",
            why=self._log.read_text()[-2000:],
            do="Is Java 17 or newer there? Try: make setup",
        )

    def survive(self, kill_after: int, rows: int) -> tuple[Figures, dict[str, Any]]:
        """Let it run through all files, and kill it after some of them.

        Args:
            kill_after: That many.
            rows: Of a file.
        """
        killed = up_again = per_epoch = 0.0
        while (event := self.next("up", "progress", "counted"))["event"] != "counted":
            if event["event"] == "up":
                up_again = time.time() - killed if killed else 0.0
                continue
            self._ends |= {one[0]: EpochEnd(*one) for one in event["ends"]}
            written = requests(self.work / "requests").bytes_written
            now = {**event, "written": written}
            self._view.progress(self.side.name, now, self.side.epochs, rows)
            if not killed and event["files"] >= kill_after:
                per_epoch = requests(self.work / "requests").number / event["files"]
                self._view.killing(event["files"])
                self._kill()
                killed = time.time()
                self._view.say("  it is dead; starting it again from its checkpoint …")
                self._start()
        if not killed:
            raise TetherError(
                "The stream was over before it could be killed.",
                do="Give it more epochs, or larger ones: --epochs, --words.",
            )
        ends = [self._ends[epoch] for epoch in sorted(self._ends)]
        return figures(ends, killed, up_again, rows, per_epoch, event["bytes_written"]), event

    def _start(self) -> None:
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [
                    sys.executable,
                    "-m",
                    "tether.cli.demo_job",
                    msgspec.json.encode(self.side).decode(),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._events = _events(self._process)

    def _kill(self) -> None:
        kill_all(self._process.pid)
        self._process.wait()


def _events(job: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The job's lines as they come, until it ends or falls silent."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert job.stdout is not None
        for line in job.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=SILENCE_SECONDS)
        except queue.Empty:
            raise TetherError(
                f"The job has said nothing for {SILENCE_SECONDS:g} s.", do="Try again."
            ) from None
        if line is None:
            return
        if line.startswith("{"):
            yield json.loads(line)
