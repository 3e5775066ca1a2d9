"""What the demo shows: one live line, the failures as they happen, then the verdict."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

BAR = 24


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
        self._last = (time.monotonic(), 0)
        self._rate = 0.0
        self._printed = 0.0

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False)

    def progress(self, now: dict[str, Any], epochs: int, rows_per_epoch: int) -> None:
        """Rate, divergence against threshold, backups, bound."""
        if not now["epochs"]:
            return  # a job that was just started has nothing to tell yet
        then, before = self._last
        if time.monotonic() - then >= 1:
            self._rate = (now["epochs"] - before) * rows_per_epoch / (time.monotonic() - then)
            self._last = (time.monotonic(), now["epochs"])
        line = (
            f"epoch {now['epochs']:>3}/{epochs} {bar(now['epochs'], epochs, 16)} "
            f"{self._rate / 1e3:6.0f}k rows/s   divergence {bar(now['divergence'], now['theta'])} "
            f"{now['divergence']:,.0f} of θ {now['theta']:,.0f}   "
            f"{now['backups']} backups, {now['backup_bytes'] / 1e6:.1f} MB   "
            f"wrong by at most {now['spent']:,.0f}"
        )
        if self._is_live:
            self._live.update(Text(line))
        elif time.monotonic() - self._printed > 2:
            self._printed = time.monotonic()
            self._console.print(line, highlight=False, soft_wrap=True)

    def story(self, event: dict[str, Any]) -> None:
        """A failure that the stream has survived."""
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

    def verdict(self, answer: pa.Table, truth: pa.Table, result: dict[str, Any]) -> None:
        """The answer beside the truth, the error beside the bound."""
        found = dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))
        title = "The most frequent words, and those that are wrong by most"
        table = Table("word", "true count", "Tether's answer", "error", title=title)
        rows = truth.sort_by([("count", "descending")]).to_pylist()
        worst = sorted(rows, key=lambda row: found.get(row["word"], 0) - row["count"])[:3]
        for row in [*rows[:3], *(row for row in worst if row not in rows[:3])]:
            count = found.get(row["word"], 0)
            table.add_row(
                row["word"], f"{row['count']:,}", f"{count:,}", f"{row['count'] - count:,}"
            )
        self._console.print(table)
        within = (
            "[green]within the bound[/green]" if result["within"] else "[red]ABOVE THE BOUND[/red]"
        )
        self.say(
            f"{result['words']:,} words, {truth.num_rows:,} distinct, failures survived: "
            f"{', '.join(result['killed'])}."
        )
        self.say(
            f"Worst error of any word: [bold]{result['worst_error']:,}[/bold]. Bound now: "
            f"{result['spent']:,.0f}; promised for any number of failures: "
            f"{result['promised']:,.0f}. {within}"
        )

    def costs(self, costs: list[dict[str, Any]]) -> None:
        """What each kind of tolerance costs on the same stream."""
        if not costs:
            return
        base = costs[0]["median_ms"]
        table = Table("the same stream, no failures", "epoch, median", "ratio", "made durable")
        for cost in costs:
            written = cost["backup_bytes"]
            table.add_row(
                cost["contender"],
                f"{cost['median_ms']:.0f} ms",
                f"{cost['median_ms'] / base:.2f}×",
                "every change" if written is None else f"{written / 1e6:.1f} MB",
            )
        self._console.print(table)
