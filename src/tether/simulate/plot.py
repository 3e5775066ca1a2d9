"""A report as one SVG picture: error against bound, recovery times, backups."""

from __future__ import annotations

from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.simulate.report import Report

# Okabe and Ito's colours, which colour-blind people can distinguish.
BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#E69F00", "#009E73", "#222222"
WIDTH, HEIGHT = 360, 240
LEFT, TOP, BETWEEN = 78, 64, 110


def draw(report: Report) -> str:
    """The picture as the text of an SVG file.

    Left: what each loss took against the θ it was allowed, on a logarithmic scale. Middle: what
    all losses so far add up to, against what a query reports and against Θ. Right: how long slots
    took to come back, and below it how many bytes were written for what.

    Example:
        >>> from tether.policies.approximate import Approximate
        >>> from tether.simulate import Scenario, simulate
        >>> draw(simulate(Scenario(copies=2, policy=Approximate(50)), failures=3))[:4]
        '<svg'
    """
    panels = [_each_loss(report), _all_losses(report), _recovery(report)]
    width = LEFT + 3 * WIDTH + 2 * BETWEEN + 30
    s = report.scenario
    kinds = ", ".join(f"{kind} {size / 1e6:.2f} MB" for kind, size in report.bytes_written.items())
    title = (
        f"{s.slots:,} slots, {sum(report.faults.values()):,} faults, {report.losses:,} losses: "
        f"{len(report.violations)} bound violations"
    )
    written = (
        f"written to the store: {kinds}; {report.items:,} items in {report.virtual_seconds:.2f} "
        f"virtual seconds; waiting for backups took {report.backup_loss:.1%} of the time up"
    )
    body = [_text(LEFT, 22, title, size=16, anchor="start"), *panels]
    body.append(_text(LEFT, TOP + HEIGHT + 72, written, anchor="start"))
    moved = [
        panel if at in (0, len(body) - 1) else f'<g transform="translate({x},{TOP})">{panel}</g>'
        for at, (panel, x) in enumerate(
            zip(body, [0, *(LEFT + n * (WIDTH + BETWEEN) for n in range(3)), 0], strict=True)
        )
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 90}" '
        f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(moved)}</svg>\n"
    )


def _each_loss(report: Report) -> str:
    pairs = list(zip(report.thetas, report.state_lost, strict=True))
    top = max([*report.thetas, *report.state_lost, 1.0])
    low = max(min([value for pair in pairs for value in pair if value > 0], default=1.0), top / 1e6)
    scale = np.log10(top / low) or 1.0

    def place(value: float) -> float:
        return float(min(1.0, max(0.0, np.log10(max(value, low) / low) / scale)))

    dots = [
        f'<circle cx="{place(theta) * WIDTH:.1f}" cy="{(1 - place(lost)) * HEIGHT:.1f}" r="3" '
        f'fill="{BLUE}" fill-opacity="0.45"/>'
        for theta, lost in pairs
    ]
    line = (
        f'<line x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="0" stroke="{ORANGE}" stroke-width="2" '
        f'stroke-dasharray="6 4"/>'
    )
    legend = _legend([(BLUE, "a loss"), (ORANGE, "the most allowed")])
    ends = (f"{low:g}", f"{top:g}")
    return _frame("state lost in each loss", "θ of the slot then (log)", ends, ends) + "".join(
        [*dots, line, legend]
    )


def _all_losses(report: Report) -> str:
    order = np.argsort(report.loss_times)
    times = np.array(report.loss_times)[order]
    end = report.virtual_seconds or 1.0
    lost = list(accumulate(np.array(report.state_lost)[order]))
    allowed = list(accumulate(np.array(report.thetas)[order]))
    top = max([*allowed, *lost, 1.0])
    parts = [
        _path(times, lost, (end, top), BLUE, ""),
        _path(times, allowed, (end, top), ORANGE, "6 4"),
        _legend([(BLUE, "measured"), (ORANGE, "reported as spent")]),
        _text(WIDTH - 6, HEIGHT - 8, f"promised at most Θ = {report.promised[0]:g}", anchor="end"),
    ]
    frame = _frame(
        "state lost in all losses", "virtual seconds", ("0", f"{end:.2f}"), ("0", f"{top:g}")
    )
    return frame + "".join(parts)


def _recovery(report: Report) -> str:
    times = 1000 * np.array(report.recovery_seconds)
    top = float(times.max(initial=1.0))
    heights, _ = np.histogram(times, bins=30, range=(0.0, top))
    most = max(int(heights.max()), 1)
    step = WIDTH / len(heights)
    bars = [
        f'<rect x="{at * step:.1f}" y="{HEIGHT * (1 - height / most):.1f}" '
        f'width="{step - 1:.1f}" height="{HEIGHT * height / most:.1f}" fill="{GREEN}"/>'
        for at, height in enumerate(heights)
    ]
    frame = _frame(
        "losses by time to come back", "milliseconds", ("0", f"{top:.0f}"), ("0", str(most))
    )
    return frame + "".join(bars)


def _path(
    times: np.ndarray, values: Sequence[float], most: tuple[float, float], colour: str, dash: str
) -> str:
    (end, top), points = most, [(0.0, 0.0)]
    for time, value in zip(times, values, strict=True):
        points += [(time, points[-1][1]), (time, value)]
    points.append((end, points[-1][1]))
    drawn = " ".join(f"{x / end * WIDTH:.1f},{HEIGHT * (1 - y / top):.1f}" for x, y in points)
    return (
        f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dash}"/>'
    )


def _frame(title: str, below: str, across: tuple[str, str], up: tuple[str, str]) -> str:
    return "".join(
        [
            f'<path d="M0,0 V{HEIGHT} H{WIDTH}" fill="none" stroke="{BLACK}"/>',
            _text(0, -12, title, size=13, anchor="start"),
            _text(WIDTH / 2, HEIGHT + 36, below),
            _text(0, HEIGHT + 18, across[0]),
            _text(WIDTH, HEIGHT + 18, across[1]),
            _text(-8, HEIGHT, up[0], anchor="end"),
            _text(-8, 10, up[1], anchor="end"),
        ]
    )


def _legend(entries: list[tuple[str, str]]) -> str:
    return "".join(
        f'<rect x="10" y="{8 + 18 * at}" width="10" height="10" fill="{colour}"/>'
        + _text(26, 17 + 18 * at, label, anchor="start")
        for at, (colour, label) in enumerate(entries)
    )


def _text(x: float, y: float, words: str, *, size: int = 12, anchor: str = "middle") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{BLACK}">{escape(words)}</text>'
    )
