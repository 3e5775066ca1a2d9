"""What the demo shows: a live line for each side, the failures as they happen, then the verdict."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

import pyarrow.parquet as pq
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
        self._console = Console(quiet=quiet)
        # Without a terminal a live line would be noise: then a line is printed now and then.
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
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
            self._live.update(Text())
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
                f"The live page: [bold]http://127.0.0.1:{port}/[/bold]  (in a few seconds, when Spark "
                "is up)"
            )
        self.say(
            f"{words:,} words in {epochs} epochs, counted twice: under Tether, and on Spark's own state "
            f"store. Checkpoints and backups of both lie on a store that takes {latency:g} ms a "
            "request. Both are killed, driver and all.\n"
        )

    def progress(self, side: str, now: dict[str, Any], epochs: int, rows_per_epoch: int) -> None:
        """Rate; under Tether divergence against threshold, backups, bound."""
        if not now["files"]:
            return  # a job that was just started has nothing to tell yet
        line = (
            f"  epoch {now['files']:>3}/{epochs} {bar(now['files'], epochs, 16)} "
            f"{self._rate(now['files']) * rows_per_epoch / 1e3:6.0f}k words/s"
        )
        if side == "tether":
            line += (
                f"   fullest slot {bar(now['fullness'], 1, 10)} {now['fullness']:.0%} of θ   "
                f"{now['backups']} backups   wrong by at most {now['spent']:,.0f}"
            )
            line += "   healing" if now["healing"] else ""
        self._line(line)

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
            self._live.update(Text(text))
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
        names = ("tether/answer", "tether/healed", "spark/answer")
        found = {name: _counts(work / f"{name}.parquet") for name in names}
        first = found["tether/answer"]
        table = Table(
            "word",
            "true count",
            "Tether",
            "error",
            "Tether, healed",
            "Spark",
            title="The most frequent words, and those that were wrong by most",
        )
        rows = truth.sort_by([("count", "descending")]).to_pylist()
        worst = sorted(rows, key=lambda row: -abs(first.get(row["word"], 0) - row["count"]))[:3]
        for row in [*rows[:3], *(row for row in worst if row not in rows[:3])]:
            word, count = row["word"], row["count"]
            told = [counts.get(word, 0) for counts in found.values()]
            off = f"{told[0] - count:,}"
            table.add_row(word, f"{count:,}", f"{told[0]:,}", off, *(f"{x:,}" for x in told[1:]))
        self._console.print(table)
        ours, theirs = result["tether"], result["spark"]
        table = Table("measured in this run", "Tether", "Spark, RocksDB + changelog")
        shown: dict[str, Callable[[dict[str, Any]], str]] = {
            "words a second, before the kill": lambda one: f"{one['rows_per_second']:,.0f}",
            "an epoch, median": lambda one: f"{one['epoch_ms']:,.0f} ms",
            "requests to the store an epoch": lambda one: f"{one['requests_per_epoch']:.1f}",
            "written to the store": lambda one: f"{one['bytes_written'] / 1e6:.1f} MB",
            "pause after the kill": lambda one: f"{one['pause']:.1f} s",
            "of it until Spark was up again": lambda one: f"{one['up_again']:.1f} s",
            "worst error of any word": lambda one: f"{one['worst_error']:,}",
        }
        for title, show in shown.items():
            table.add_row(title, show(ours), show(theirs))
        said = f"{ours['spent']:,.0f}; never above {ours['promised']:,.0f}"
        table.add_row("what it said it could be", said, "exact")
        healed = result["healed"]
        table.add_row(
            "worst error, healed", f"{healed['worst_error']:,} (bound {healed['spent']:,.0f})", ""
        )
        self._console.print(table)

    def closing(self, result: dict[str, Any]) -> None:
        """What was seen."""
        self.say("[bold]What you have seen[/bold]")
        for line in result["said"]:
            self.say(f"- {line}")
        where = result["picture"]
        if where:
            self.say(f"As a picture: {where}")
        self.say(f"({result['seconds']:.0f} s in all, four starts of Spark among them.)")


def _counts(file: Path) -> dict[str, int]:
    answer = pq.read_table(file)
    return dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))
