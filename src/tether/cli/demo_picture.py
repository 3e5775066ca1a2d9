"""The demo as a picture, for machines without a browser: words counted over time, on either store."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tether.cli.demo_said import rounded

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH, HEIGHT = 860, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 100, 45
# Apart without their colours, too: one line is dashed.
STYLE = """
svg{font:13px system-ui,sans-serif;background:#fff;color:#1b2430}
text{fill:currentColor} .soft{fill:#5d6878} .title{font-size:17px;font-weight:600}
.grid{stroke:#dde3ea} .ours{stroke:#1268a3;fill:none;stroke-width:2.5}
.theirs{stroke:#a83a08;fill:none;stroke-width:2.5;stroke-dasharray:7 4}
.pause{opacity:.14} .kill{stroke:currentColor;stroke-width:1.5}
"""


def picture(result: dict[str, Any]) -> str:
    """An SVG of both sides, each from its own first epoch on, with the kill and the pause after it."""
    sides = {"ours": result["tether"], "theirs": result["spark"]}
    words = result["words"] / result["epochs"]
    until: float = max(one["ends"][-1][1] - one["started"] for one in sides.values()) * 1.04

    def x(seconds: float) -> float:
        return round(LEFT + seconds / until * (WIDTH - LEFT - RIGHT), 1)

    def y(share: float) -> float:
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    parts = list(_axes(x, y, until, result["words"]))
    said = {"ours": _ours(result), "theirs": _theirs(result["spark"])}
    for row, (kind, side) in enumerate(sides.items()):
        points = [(0.0, 0.0)]
        for done, (_, at, _ms) in enumerate(side["ends"], start=1):
            points.append((at - side["started"], done * words / result["words"]))
        killed = side["killed"] - side["started"]
        reached = max(share for seconds, share in points if seconds <= killed)
        color, top = "#1268a3" if kind == "ours" else "#a83a08", 50 + 20 * row
        broad = round(x(killed + side["pause"]) - x(killed), 1)
        parts += [
            f'<rect class="pause" fill="{color}" x="{x(killed)}" y="{y(1)}" width="{broad}" '
            f'height="{y(0) - y(1)}"/>',
            f'<polyline class="{kind}" points="{" ".join(f"{x(a)},{y(b)}" for a, b in points)}"/>',
            f'<path class="kill" d="M{x(killed) - 5} {y(reached) - 5}l10 10m0 -10l-10 10"/>',
            f'<path class="{kind}" d="M{LEFT} {top - 4}h26"/>',
            f'<text x="{LEFT + 34}" y="{top}">{escape(said[kind])}</text>',
        ]
    title = f"{result['words']:,} words, each request to the store {result['latency_ms']:g} ms"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>'
        f"{''.join(parts)}</svg>\n"
    )


def _went(side: dict[str, Any]) -> str:
    rate = rounded(side["rows_per_second"])
    return f"{rate} words a second, silent for {side['pause']:.1f} s after the kill"


def _ours(result: dict[str, Any]) -> str:
    ours, healed = result["tether"], result["healed"]
    return (
        f"Tether: {_went(ours)}; wrong by {ours['worst_error']:,} (told: at most {ours['spent']:,.0f}), "
        f"healed: {healed['worst_error']:,}"
    )


def _theirs(side: dict[str, Any]) -> str:
    right = "exact" if side["worst_error"] == 0 else f"wrong by {side['worst_error']:,}"
    return f"Spark, RocksDB: {_went(side)}; {right}"


def _axes(x: Any, y: Any, until: float, words: int) -> Iterable[str]:
    for share in (0.0, 0.5, 1.0):
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share)}" y2="{y(share)}"/>'
        yield (
            f'<text class="soft" x="{LEFT - 8}" y="{y(share) + 4}" text-anchor="end">'
            f"{share * words / 1e6:.1f} M</text>"
        )
    step = next(size for size in (1, 2, 5, 10, 20, 60, 300, 3600) if until / size <= 10)
    for number in range(int(until / step) + 1):
        yield (
            f'<text class="soft" x="{x(number * step)}" y="{HEIGHT - BOTTOM + 20}" '
            f'text-anchor="middle">{number * step}</text>'
        )
    yield (
        f'<text class="soft" x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">'
        "seconds since each one's first epoch; ×: SIGKILL; shaded: nothing until the next epoch</text>"
    )
