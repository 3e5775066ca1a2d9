"""All algorithms in one picture: how many times as fast as Spark's way each contender is."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bench.report.bars import BASES, kinds_legend, varied
from bench.report.load import commands
from bench.report.style import BLACK, KINDS, Plot, drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report.load import Measured

TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def at_a_glance(measured: Measured) -> Iterator[Plot]:
    """A line for each scenario, a point for each contender that keeps its state durable."""
    scenarios: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in measured.results("peers"):
        if not varied(result) and result["kind"] != "limit":
            scenarios[result["scenario"]].append(result)
    lines = [
        (name, results, base)
        for name, results in scenarios.items()
        if (base := _base(results)) and len(results) > 1
    ]
    if len(lines) < 2:
        return  # one scenario has its own picture
    with drawing("glance", 8.6, 1.2 + 0.42 * len(lines)) as (figure, svg):
        axes = figure.subplots()
        axes.axvline(1, color=BLACK, linewidth=0.8, linestyle=":")
        for place, (_, results, base) in enumerate(reversed(lines)):
            for result in results:
                times = result["rows_per_second"] / base
                axes.plot(
                    [times],
                    [place],
                    marker="o",
                    markersize=9,
                    color=KINDS[result["kind"]],
                    markeredgecolor="white",
                    zorder=3 if result["kind"] == "tether" else 2,
                )
            best = max(
                (one["rows_per_second"] / base for one in results if one["kind"] == "tether"),
                default=None,
            )
            if best is not None:
                axes.annotate(
                    f"{best:.2f}×",
                    (best, place),
                    xytext=(0, 8),
                    textcoords="offset points",
                    ha="center",
                    fontsize=9,
                )
        axes.set_yticks(range(len(lines)), [name for name, _, _ in reversed(lines)])
        found = [one["rows_per_second"] / base for _, results, base in lines for one in results]
        low, high = 0.8 * min(found), 1.25 * max(found)
        axes.set(xscale="log", xlim=(low, high), ylim=(-0.6, len(lines) - 0.2))
        ticks = [value for value in TICKS if low <= value <= high]
        axes.set_xticks(ticks, [f"{value:g}×" for value in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("times as fast as Spark (right is faster)")
        kinds_legend(figure, {one["kind"] for _, results, _ in lines for one in results})
    caption = (
        "Dotted: Spark with RocksDB and changelog; for logistic regression, foreachBatch with the model "
        "on the driver. The number is the best of Tether's. Limits, which keep nothing durable, "
        "are in the pictures of the single scenarios."
    )
    every = [one for _, results, _ in lines for one in results]
    yield Plot("glance", "All algorithms at a glance", svg[0], caption, commands(every))


def _base(results: list[dict[str, Any]]) -> float | None:
    rates = {one["contender"]: float(one["rows_per_second"]) for one in results}
    return next((rates[name] for name in BASES if name in rates), None)
