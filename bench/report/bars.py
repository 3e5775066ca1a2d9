"""Bars: throughput with ratios, times with spread, bytes made durable, speed kept beside the papers'."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.report.load import command_of, commands
from bench.report.style import (
    BLACK,
    BLUE,
    GREY,
    KIND_NAMES,
    KINDS,
    Plot,
    drawing,
    short,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report.load import Measured

BASES = ("spark-rocksdb", "spark-foreach-batch")
"""Whom ratios are to: Spark with RocksDB, or where that cannot be asked, what a user would write."""
POLICIES = {"approximate": "approximate", "minibatch": "mini-batch", "upstream": "upstream backup"}


def label_of(result: dict[str, Any]) -> str:
    """A contender's name for people."""
    return str(result.get("label", result["contender"]))


def varied(result: dict[str, Any]) -> bool:
    """Whether a result belongs to a curve: its scenario varies a field, and is named after it."""
    return re.search(r", (rows|keys|interval) [\d.]+$", result["scenario"]) is not None


def beside(axes: Any, x: float, y: float, text: str, *, size: int = 9) -> None:
    """Write a bar's value a little to the right of its end."""
    axes.annotate(
        text, (x, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=size
    )


def throughput(measured: Measured) -> Iterator[Plot]:
    """Rows a second of all contenders, one picture a scenario, with ratios to one of Spark's ways."""
    scenarios = defaultdict(list)
    for result in measured.results("peers"):
        if not varied(result):
            scenarios[result["scenario"]].append(result)
    for number, (scenario, results) in enumerate(scenarios.items()):
        rates = {result["contender"]: result["rows_per_second"] for result in results}
        labels = {result["contender"]: label_of(result) for result in results}
        base = next((name for name in BASES if name in rates), None)
        results.sort(key=lambda result: result["rows_per_second"])
        edge = _edge(results)
        name = f"throughput-{number}"
        with drawing(name, 8.6, 1.1 + 0.34 * len(results)) as (figure, svg):
            axes = figure.subplots()
            for place, result in enumerate(results):
                rate = result["rows_per_second"]
                low, high = (
                    result["rows_per_epoch"] / ms * 1_000 for ms in result["spread_ms"][::-1]
                )
                limit = result["kind"] == "limit"
                cut = rate > edge
                axes.barh(
                    place,
                    min(rate, edge),
                    color=KINDS[result["kind"]],
                    hatch="///" if limit else None,
                    edgecolor="white",
                    height=0.72,
                )
                if high > low and not cut:
                    axes.plot([low, high], [place, place], color=BLACK, linewidth=1.2)
                ratio = f" · {rate / rates[base]:.2f}×" if base else ""
                end = edge if cut else max(rate, high)
                beside(axes, end, place, f"{'≫ ' if cut else ''}{short(rate)}{ratio}")
            axes.set_yticks(range(len(results)), [label_of(one) for one in results])
            axes.set(xlim=(0, 1.32 * edge), ylim=(-0.6, len(results) - 0.4))
            axes.set_xlabel(f"rows a second{f' · times {labels[base]}' if base else ''}")
            axes.xaxis.set_major_formatter(lambda value, _: short(value))
            kinds_legend(figure, {one["kind"] for one in results})
        caption = (
            "Median over rounds; the thin line is from the slowest to the fastest round. "
            "Every answer was checked before its time counted."
        )
        if max(rates.values()) > edge:
            caption += " A bar with ≫ is cut off: the others could not be told apart beside it."
        yield Plot(name, f"Throughput: {scenario}", svg[0], caption, commands(results))


def _edge(results: list[dict[str, Any]]) -> float:
    """How far bars reach: a limit that dwarfs all who keep their state durable is cut off."""
    longest = max(one["rows_per_second"] for one in results)
    durable = [one["rows_per_second"] for one in results if one["kind"] != "limit"]
    return float(
        min(longest, 3 * max(durable)) if durable and longest > 8 * max(durable) else longest
    )


def kinds_legend(figure: Any, kinds: set[str]) -> None:
    """What the colours mean."""
    from matplotlib.patches import Patch  # noqa: PLC0415 - an extra

    handles = [
        Patch(
            facecolor=colour,
            hatch="///" if kind == "limit" else None,
            edgecolor="white",
            label=KIND_NAMES[kind],
        )
        for kind, colour in KINDS.items()
        if kind in kinds
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=9)


def epoch_times(measured: Measured) -> Iterator[Plot]:
    """Median times with spread of experiments that compare epochs, not rows."""
    for name, report in measured.reports.items():
        results = [
            one for one in report["results"] if one.get("spread_ms") and one.get("median_ms")
        ]
        if report["experiment"] in ("peers", "tolerance") or not results:
            continue
        with drawing(f"times-{name}", 8.6, 0.9 + 0.3 * len(results)) as (figure, svg):
            axes = figure.subplots()
            for place, result in enumerate(reversed(results)):
                ours = "tether" in result["contender"].lower()
                axes.barh(place, result["median_ms"], color=BLUE if ours else GREY, height=0.7)
                low, high = result["spread_ms"]
                axes.plot([low, high], [place, place], color=BLACK, linewidth=1.2)
                text = f"{result['median_ms']:,.4g} ms"
                beside(axes, max(high, result["median_ms"]), place, text)
            axes.set_yticks(range(len(results)), [one["contender"] for one in reversed(results)])
            longest = max(one["spread_ms"][1] for one in results)
            axes.set(xlim=(0, 1.18 * longest), ylim=(-0.6, len(results) - 0.4))
            axes.set_xlabel("milliseconds (shorter is better)")
        caption = "Median over rounds, with the fastest and slowest round."
        title = f"Time: {report['experiment']}"
        yield Plot(f"times-{name}", title, svg[0], caption, command_of(report))


def durable_bytes(measured: Measured) -> Iterator[Plot]:
    """Bytes that each contender made durable for a row."""
    results = [
        one
        for one in measured.results("peers")
        if one.get("detail", {}).get("durable_bytes_per_row") is not None and not varied(one)
    ]
    if not results:
        return
    found = [
        (
            f"{label_of(one)} ({one['scenario']})",
            one["detail"]["durable_bytes_per_row"],
            one["kind"],
        )
        for one in results
    ]
    found.sort(key=lambda one: -one[1])
    with drawing("bytes", 8.6, 1.1 + 0.3 * len(found)) as (figure, svg):
        axes = figure.subplots()
        for place, (_, size, kind) in enumerate(found):
            axes.barh(place, size, color=KINDS[kind], height=0.7)
            beside(axes, size, place, f"{size:.2f}")
        axes.set_yticks(range(len(found)), [one[0] for one in found])
        axes.set(xlim=(0, 1.15 * max(one[1] for one in found)), ylim=(-0.6, len(found) - 0.4))
        axes.set_xlabel("bytes for a row of input (fewer is better)")
        kinds_legend(figure, {one[2] for one in found})
    caption = "Bytes written as backups or state checkpoints over the whole run, loading included."
    yield Plot("bytes", "Bytes durable per row", svg[0], caption, commands(results))


def speed_kept(measured: Measured) -> Iterator[Plot]:
    """Part of the speed without tolerance that each policy keeps, beside the paper's."""
    results = list(measured.results("tolerance"))
    kept = {one["contender"]: one["kept"] for one in results}
    paper = tomllib.loads((Path(__file__).parent / "papers.toml").read_text(encoding="utf-8"))
    source = paper.pop("source")
    algorithms = [name for name in paper if f"{name}: none" in kept]
    if not algorithms:
        return
    with drawing("speed-kept", 8.6, 3.9) as (figure, svg):
        for place, (axes, (policy, title)) in enumerate(
            zip(figure.subplots(1, len(POLICIES), sharey=True), POLICIES.items(), strict=True)
        ):
            for row, name in enumerate(algorithms):
                theirs = paper[name][policy] / paper[name]["none"]
                ours = kept[f"{name}: {policy}"]
                for shift, value, colour, hatch in (
                    (0.2, ours, BLUE, None),
                    (-0.2, theirs, GREY, "///"),
                ):
                    axes.barh(
                        row + shift,
                        value,
                        height=0.38,
                        color=colour,
                        hatch=hatch,
                        edgecolor="white",
                    )
                    beside(axes, value, row + shift, f"{value:.2f}", size=8)
            axes.axvline(1, color=BLACK, linewidth=0.8, linestyle=":")
            axes.set(title=title, xlim=(0, 1.35))
            axes.set_yticks(range(len(algorithms)), algorithms)
            if place == 1:
                axes.set_xlabel("part of the speed without fault tolerance that is kept")
        _two_legend(figure, "Tether, measured here", "the paper's system")
    caption = (
        f"Dotted: the speed with no tolerance at all. {source}: another system on another cluster, "
        "so only the parts kept are comparable. Spark's own epoch is in both of our times."
    )
    title = "Speed kept, beside the paper's"
    yield Plot("speed-kept", title, svg[0], caption, commands(results))


def _two_legend(figure: Any, ours: str, theirs: str) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - an extra

    handles = [
        Patch(facecolor=BLUE, edgecolor="white", label=ours),
        Patch(facecolor=GREY, hatch="///", edgecolor="white", label=theirs),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=9)
