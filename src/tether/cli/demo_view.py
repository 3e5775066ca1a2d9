"""What the demo shows: a live line for each side, the failures as they happen, then the verdict."""

from __future__ import annotations

import io
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

BAR = 24
SECONDS_BETWEEN_LINES = 2
STEPS = 5
ROOMY = 80
"""Columns of a terminal that has room for bars."""


def bar(part: float, whole: float, width: int = BAR) -> str:
    """A bar that is full when ``part`` reaches ``whole``.

    Example:
        >>> bar(1, 2, 4)
        '██··'
    """
    filled = 0 if whole <= 0 else min(width, round(width * part / whole))
    return "█" * filled + "·" * (width - filled)


class DemoView:
    """The demo's screen; says nothing when ``quiet``."""

    def __init__(self, *, quiet: bool) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a bar is not worth an error
        self._console = Console(quiet=quiet)
        # Without a terminal a live line would be noise: then a line is printed now and then.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._is_live = self._console.is_terminal and not quiet
        self._steps: deque[tuple[float, int]] = deque(maxlen=STEPS)
        """Times, and the number of epochs that were done then; the newest ones only."""
        self._printed = (0.0, "")

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.update(Text(), refresh=True)
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, soft_wrap=not self._console.is_terminal)

    def opening(self, port: int | None, words: int, epochs: int, latency: float) -> None:
        """Where to look, and what is going to happen."""
        if port is None:
            self.say("For the live page: pip install 'tether[ui]'")
        else:
            self.say(
                f"The live page: [bold]http://127.0.0.1:{port}/[/bold]  (open it in a few seconds, when "
                "Spark is up; it ends with the demo)"
            )
        self.say(
            f"{words:,} words in {epochs} epochs, counted twice: under Tether, and on Spark's own state "
            f"store. Checkpoints and backups of both lie on a store that takes {latency:g} ms a "
            "request. Both are killed, driver and all.\n"
        )

    def progress(self, side: str, now: dict[str, Any], epochs: int, rows_per_epoch: int) -> None:
        """Rate and bytes written; under Tether the bound, and divergence against threshold."""
        if not now["files"]:
            return  # a job that was just started has nothing to tell yet
        parts = [f"epoch {now['files']:>3}/{epochs}"]
        if self._console.width >= ROOMY:
            parts[0] += f" {bar(now['files'], epochs, 16)}"
        if side == "tether":
            parts.append(
                f"wrong by at most {now['spent']:,.0f}" + (", healing" if now["healing"] else "")
            )
        if rate := self._rate(now["files"]):
            parts.append(f"{rate * rows_per_epoch / 1e3:4.0f}k words/s")
        if side == "tether":
            parts += [
                f"most drifted slot {bar(now['fullness'], 1, 10)} {now['fullness']:.0%} of θ",
            ]
        # Of the whole stream: a count of backups would begin anew with the process.
        parts.append(f"{now['written'] / 1e6:.1f} MB written")
        self._line("  " + "   ".join(parts))

    def killing(self, epoch: int) -> None:
        """The job is about to be killed: the pause is no part of its pace."""
        self._steps.clear()
        self.say(f"  [red]SIGKILL[/red] after epoch {epoch}, driver and all")

    def _rate(self, done: int) -> float:
        """Epochs a second, of the last few."""
        if self._steps and done < self._steps[-1][1]:
            self._steps.clear()  # the other side has begun
        if not self._steps or done > self._steps[-1][1]:
            self._steps.append((time.monotonic(), done))
        (early, before), (late, after) = self._steps[0], self._steps[-1]
        return (after - before) / (late - early) if late > early else 0.0

    def healing(self, now: dict[str, Any]) -> None:
        """How far the twin is."""
        left = now["seconds_left"]
        told = "" if left is None else f", about {left:.0f} s left"
        self._line(f"  healing: {now['behind']} epochs to go{told}")

    def _line(self, text: str) -> None:
        if self._is_live:
            # One line, whatever the width: the first words matter most.
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            return
        printed, before = self._printed
        if text != before and time.monotonic() - printed > SECONDS_BETWEEN_LINES:
            self._printed = (time.monotonic(), text)
            self.say(text)

    def story(self, event: dict[str, Any]) -> None:
        """A failure that the stream has survived, and what came of it."""
        if event["what"] == "rollback":
            self.say(
                f"  slot {event['slot']}: epoch {event['epoch']} was half applied; rolled back and "
                "run again, nothing lost"
            )
        elif event["what"] == "recovery":
            detail = event["detail"]
            self.say(
                f"  slot {event['slot']}: resident state lost; restored from the backup of epoch "
                f"{detail['backup_epoch']} ({detail['entries']:,} entries, "
                f"{sum(detail['seconds'].values()) * 1e3:.0f} ms); lost at most "
                f"{detail['bound']:,.0f}; θ is now {detail['theta']:,.0f}"
            )
        elif event["what"] == "taken-over":
            self.say("  healed: the twin has read again what was lost, and takes over")
        else:
            self.say(f"  {event['what']}: {event['cause']}")

    def verdict(self, work: Path, truth: pa.Table, result: dict[str, Any]) -> None:
        """The answers beside the truth."""
        if self._is_live:
            self._live.update(Text(), refresh=True)  # how it went is over
        names = ("tether/answer", "tether/healed", "spark/answer")
        found = {name: _counts(work / f"{name}.parquet") for name in names}
        first = found["tether/answer"]
        self.say("\nThe most frequent words, and those that were wrong by most:")
        table = _table("word", "true", "Tether", "error", "healed", "Spark")
        rows = truth.sort_by([("count", "descending")]).to_pylist()
        worst = sorted(rows, key=lambda row: -abs(first.get(row["word"], 0) - row["count"]))[:3]
        for row in [*rows[:3], *(row for row in worst if row not in rows[:3])]:
            word, count = row["word"], row["count"]
            told = [counts.get(word, 0) for counts in found.values()]
            off = f"{told[0] - count:,}"
            table.add_row(word, f"{count:,}", f"{told[0]:,}", off, *(f"{x:,}" for x in told[1:]))
        self._console.print(table)
        ours, theirs = result["tether"], result["spark"]
        table = _table("measured in this run", "Tether", "Spark, RocksDB + changelog")
        shown: dict[str, Callable[[dict[str, Any]], str]] = {
            "words a second, before the kill": lambda one: f"{one['rows_per_second']:,.0f}",
            "an epoch, median": lambda one: f"{one['epoch_ms']:,.0f} ms",
            "requests to the store an epoch": lambda one: f"{one['requests_per_epoch']:.1f}",
            "written to the store": lambda one: f"{one['bytes_written'] / 1e6:.1f} MB",
            "pause after the kill": lambda one: f"{one['pause']:.1f} s",
            "- of it until Spark was up again": lambda one: f"{one['up_again']:.1f} s",
            "worst error of any word": lambda one: f"{one['worst_error']:,}",
        }
        for title, show in shown.items():
            table.add_row(title, show(ours), show(theirs))
        table.add_row("the bound that it told with it", f"{ours['spent']:,.0f}", "exact")
        table.add_row("the most that it may ever tell", f"{ours['promised']:,.0f}", "exact")
        healed = result["healed"]
        table.add_row("worst error, once healed", f"{healed['worst_error']:,}", "")
        table.add_row("the bound then", f"{healed['spent']:,.0f}", "")
        self._console.print(table)

    def closing(self, result: dict[str, Any]) -> None:
        """What was seen."""
        self.say("[bold]What you have seen[/bold], all of it measured in this run:")
        for line in result["said"]:
            self.say(f"- {line}")
        where = result["picture"]
        if where:
            self.say(f"As a picture: {where}")
        self.say(f"({result['seconds']:.0f} s in all, four starts of Spark among them.)")


def _table(first: str, *others: str) -> Table:
    """Without upright lines, so that it fits a narrow terminal too."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _counts(file: Path) -> dict[str, int]:
    answer = pq.read_table(file)
    return dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))
