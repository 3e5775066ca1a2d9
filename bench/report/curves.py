"""Curves: throughput against interval, growth with state size, error against bound."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any

from bench.report.bars import beside, label_of
from bench.report.load import commands
from bench.report.style import BLACK, BLUE, LINES, MARKERS, ORANGE, Plot, drawing, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.report.load import Measured


Curves = dict[str, list[dict[str, Any]]]


def _lines(figure: Any, curves: Curves, x: Callable[[dict[str, Any]], float], y: str) -> Any:
    axes = figure.subplots()
    used: defaultdict[str, int] = defaultdict(int)
    for number, (label, results) in enumerate(curves.items()):
        points = sorted((x(one), one[y]) for one in results)
        kind = results[0]["kind"]
        colours = LINES[kind]
        axes.plot(
            *zip(*points, strict=True),
            color=colours[used[kind] % len(colours)],
            marker=MARKERS[number % len(MARKERS)],
            label=label,
            linewidth=1.8,
            markersize=6,
        )
        used[kind] += 1
    axes.set(xscale="log")
    axes.set_ylim(bottom=0)  # heights are compared, so they begin at nothing
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.7)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: short(value))
    axes.xaxis.set_minor_formatter(lambda *_: "")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return axes


def _varied(measured: Measured, scenario: str) -> Curves:
    found = defaultdict(list)
    for result in measured.results("peers"):
        if result["scenario"].startswith(scenario):
            found[label_of(result)].append(result)
    return {name: results for name, results in found.items() if len(results) > 1}


def intervals(measured: Measured) -> Iterator[Plot]:
    """Throughput against the time between two commits."""
    varied = _varied(measured, "intervals, rows")
    if not varied:
        return
    with drawing("intervals", 8.6, 4.2) as (figure, svg):
        axes = _lines(figure, varied, lambda one: one["median_ms"], "rows_per_second")
        axes.set(xlabel="length of an epoch, milliseconds", ylabel="rows a second")
    caption = (
        "Each line goes through epochs of growing size, run back to back, so that an epoch's length is "
        "the interval between two commits. Up is faster; left is sooner."
    )
    title = "Throughput against interval"
    yield Plot("intervals", title, svg[0], caption, commands(list(chain(*varied.values()))))


def checkpoint_intervals(measured: Measured) -> Iterator[Plot]:
    """Throughput against the checkpoint interval of a peer that has one."""
    varied = _varied(measured, "checkpoint intervals, interval")
    if not varied:
        return
    with drawing("checkpoint-intervals", 8.6, 4.2) as (figure, svg):
        axes = _lines(figure, varied, lambda one: one["workload"]["interval"], "rows_per_second")
        axes.set(xlabel="seconds between checkpoints", ylabel="rows a second")
    caption = "Tether has no such interval; its line shows how much the machine itself varies."
    title = "What a checkpoint interval costs PyFlink"
    found = commands(list(chain(*varied.values())))
    yield Plot("checkpoint-intervals", title, svg[0], caption, found)


def growth(measured: Measured) -> Iterator[Plot]:
    """An epoch's time against the number of resident keys."""
    varied = _varied(measured, "keyed sum, keys")
    if not varied:
        return
    with drawing("growth", 8.6, 4.2) as (figure, svg):
        axes = _lines(figure, varied, lambda one: one["workload"]["keys"], "median_ms")
        axes.set(xlabel="resident keys", ylabel="milliseconds an epoch")
    caption = (
        "The same epochs with ever more keys resident: a flat line follows the work, not the state."
    )
    title = "Growth with state size"
    yield Plot("growth", title, svg[0], caption, commands(list(chain(*varied.values()))))


def error_against_bound(measured: Measured) -> Iterator[Plot]:
    """Measured error after a loss of everything, beside the bound that was told."""
    results, points = list(measured.results("thresholds")), []
    for result in results:
        detail = result.get("detail", {})
        bound, error = detail.get("bound"), detail.get("error_after_losing_all")
        if isinstance(bound, int | float) and error is not None and bound > 0:
            points.append((result["contender"], float(bound), float(error)))
    if not points:
        return
    with drawing("bound", 8.6, 3.6) as (figure, svg):
        axes = figure.subplots()
        names = [name for name, _, _ in points]
        for place, (_, bound, error) in enumerate(points):
            axes.plot([place], [bound], marker="_", markersize=26, markeredgewidth=2.5, color=BLACK)
            axes.plot([place], [max(error, 0.5)], marker="o", markersize=8, color=BLUE)
            axes.annotate(
                f"{error:g} of {bound:g}",
                (place, bound),
                textcoords="offset points",
                xytext=(0, 7),
                ha="center",
                fontsize=9,
            )
        axes.set(yscale="log", ylabel="worst error of a word's count", ylim=(0.3, None))
        axes.set_xlim(-0.6, len(points) - 0.4)
        axes.margins(y=0.25)
        axes.set_xticks(range(len(points)), names, rotation=20, ha="right")
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
        handles = [
            axes.plot(
                [], [], marker="_", markersize=14, linestyle="", color=BLACK, label="bound told"
            )[0],
            axes.plot([], [], marker="o", linestyle="", color=BLUE, label="error found")[0],
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=9)
    caption = (
        "Word count that lost all resident state in its last epoch. "
        "An error of 0 is drawn at the lower edge."
    )
    title = "Error against bound"
    yield Plot("bound", title, svg[0], caption, commands(results))


def recovery(measured: Measured) -> Iterator[Plot]:
    """How long a failure stops the stream."""
    found = [one for one in measured.results("recovery") if one.get("median_ms")]
    found += [one for one in measured.results("sql") if one["contender"].startswith("restart: ")]
    if not found:
        return
    with drawing("recovery", 8.6, 0.9 + 0.32 * len(found)) as (figure, svg):
        axes = figure.subplots()
        for place, result in enumerate(reversed(found)):
            ours = "tether" in result["contender"]
            low, high = (ms / 1_000 for ms in result["spread_ms"])
            seconds = result["median_ms"] / 1_000
            axes.barh(place, seconds, color=BLUE if ours else ORANGE, height=0.7)
            axes.plot([low, high], [place, place], color=BLACK, linewidth=1.2)
            beside(axes, max(high, seconds), place, f"{seconds:.2f} s")
        axes.set_yticks(range(len(found)), [one["contender"] for one in reversed(found)])
        longest = max(one["spread_ms"][1] for one in found) / 1_000
        axes.set(xlim=(0, 1.15 * longest), ylim=(-0.6, len(found) - 0.4))
        axes.set_xlabel("seconds until the stream goes on (shorter is better)")
    caption = (
        "Blue is Tether. Restarts: the first epoch of a query that starts with nothing in memory."
    )
    yield Plot("recovery", "Recovery time", svg[0], caption, commands(found))
