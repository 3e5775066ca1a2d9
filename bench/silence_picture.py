"""A picture of a run of :mod:`bench.silences`: how late answers were while an input was silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.report.style import BLUE, GREY, ORANGE, drawing

if TYPE_CHECKING:
    from pathlib import Path

    import tether
    from bench.silences import Feed, Sink


def draw(sink: Sink, feed: Feed, policy: tether.Available, warm: float, path: Path) -> None:
    """How late the newest row of each epoch was when the epoch was given, over time."""
    with drawing("silence-run", 8, 3.6) as (figure, svg):
        axes = figure.add_subplot()
        begin = warm - 3
        cut, back = (at / 1e6 - begin for at in feed.cut_between)
        axes.axvspan(cut, back, color="0.92", label="one input of three is cut off")
        for kind, color in (("stable", BLUE), ("tentative", ORANGE)):
            points = [
                (at - begin, at - got[:, 0].max() / 4e6)
                for at, told, got in sink.given
                if told == kind and len(got) and at > begin and got[:, 0].max() / 4e6 < at
            ]
            if points:
                axes.plot(
                    *zip(*points, strict=True), "o", ms=3.5, color=color, label=f"{kind} answers"
                )
        axes.axhline(policy.delay, color=GREY, lw=0.9, ls="--")
        axes.annotate("X", (0.1, policy.delay), fontsize=9, va="bottom")
        axes.set(
            xlabel="seconds", ylabel="seconds after its newest row", xlim=(0, None), ylim=(0, None)
        )
        axes.legend(loc="upper right", fontsize=8, frameon=False)
    path.write_text(svg[0] + "\n", encoding="utf-8")
