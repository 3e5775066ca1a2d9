"""An input falls silent: delays, tentative rows and corrections (DPC 2005, Figures 9 to 12, Table 3)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from bench.report.load import command_of
from bench.report.style import BLUE, GREEN, GREY, MARKERS, ORANGE, PURPLE, RED, SKY, Plot, drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report.load import Measured

    Runs = list[dict[str, Any]]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)


def _reports(measured: Measured, figure: str | None = None) -> Iterator[dict[str, Any]]:
    for report in measured.reports.values():
        if report["experiment"] != "reconcile" or "silences" not in report:
            continue
        if figure is None or report.get("figures", {}).get(figure):
            yield report


def _by(runs: Runs, *names: str) -> dict[str, Runs]:
    found: defaultdict[str, Runs] = defaultdict(list)
    for run in runs:
        found[", ".join(str(run[name]) for name in names)].append(run)
    return dict(found)


def _lines(axes: Any, lines: dict[str, Runs], x: str, y: str) -> None:
    for number, (label, runs) in enumerate(lines.items()):
        points = sorted((run[x], run[y]) for run in runs if run[y] is not None)
        axes.plot(
            *zip(*points, strict=True),
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            label=label,
        )
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.7)


def _delays_and_rows(name: str, lines: dict[str, Runs], x: str, xlabel: str) -> str:
    """Two panels: the greatest delay of a new row, and tentative rows."""
    most = next(iter(lines.values()))[0]["x"]
    with drawing(name, 9.4, 3.8) as (figure, svg):
        left, right = figure.subplots(1, 2)
        _lines(left, lines, x, "worst_delay_s")
        left.axhline(most, color=GREY, linestyle="--", linewidth=0.9)
        left.annotate("X", (0, most), xycoords=("axes fraction", "data"), va="bottom", fontsize=9)
        left.set(xlabel=xlabel, ylabel="greatest delay of a new row, seconds")
        _lines(right, lines, x, "tentative_rows")
        right.set(xlabel=xlabel, ylabel="tentative rows")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=8
        )
    return svg[0]


def against_alpha(measured: Measured) -> Iterator[Plot]:
    """Figure 9: what waiting longer before a tentative answer gains and costs."""
    for report in _reports(measured, "figure_9"):
        lines = _by(report["figures"]["figure_9"], "failure")
        svg = _delays_and_rows("silence-alpha", lines, "alpha_x", "αX, seconds")
        caption = (
            "One input of three is cut off for 5 seconds. As in the paper's Figure 9, fewer rows are "
            "tentative the longer the query waits. There the delay grows with αX alone; here an epoch "
            "of Spark, a quarter of a second, is added to it."
        )
        title = "Waiting longer: fewer tentative rows, later answers"
        yield Plot("silence-alpha", title, svg, caption, command_of(report))


def against_length_of_failure(measured: Measured) -> Iterator[Plot]:
    """Figure 10: all ways to handle a failure and what follows it."""
    for report in _reports(measured):
        lines = _by(report["silences"], "failure", "stabilization")
        svg = _delays_and_rows("silence-length", lines, "seconds", "length of the failure, seconds")
        caption = (
            "The first word says what happens to new rows during the failure, the second what happens "
            "while late rows are put right. As in the paper's Figure 10, process gives more tentative "
            "rows than delay, and suspend breaks X after longer failures. There the two kinds of work "
            "are on two nodes; here they take turns on the same cores."
        )
        title = "Failures of 2 to 60 seconds, in every way to handle them"
        yield Plot("silence-length", title, svg, caption, command_of(report))


def along_a_chain(measured: Measured) -> Iterator[Plot]:
    """Figure 11: query behind query behind query."""
    for report in _reports(measured, "figure_11"):
        lines = _by(report["figures"]["figure_11"], "failure", "stabilization")
        svg = _delays_and_rows("silence-chain", lines, "length", "queries in a chain")
        caption = (
            "An input of the first query is cut off for 6 seconds; rows are judged behind the last one. "
            "In the paper's Figure 11 the delay grows with the chain under delay, and hardly under "
            "process. Here every query is a Spark query of its own, all on the same cores, so each "
            "adds its epochs under both."
        )
        title = "Chains of queries"
        yield Plot("silence-chain", title, svg, caption, command_of(report))


def checkpoint_and_undo(measured: Measured) -> Iterator[Plot]:
    """Figure 12: two ways back to the state before the failure."""
    for report in _reports(measured, "figure_12"):
        runs = report["figures"]["figure_12"]
        kinds = sorted({(run["entries"], run["rate"]) for run in runs})
        with drawing("silence-reconcile", 6.8, 3.6) as (figure, svg):
            axes = figure.subplots()
            for number, (way, some) in enumerate(_by(runs, "reconcile").items()):
                for run in some:
                    at = kinds.index((run["entries"], run["rate"])) + 0.36 * (number - 0.5)
                    label = way if run is some[0] else None
                    axes.bar(at, run["reconcile_s"], 0.34, color=COLOURS[number], label=label)
            axes.set_xticks(range(len(kinds)))
            axes.set_xticklabels(
                [f"{entries:,} further entries\n{rate:,} rows a second" for entries, rate in kinds],
                fontsize=8,
            )
            axes.set(ylabel="seconds until all is put right")
            axes.legend(frameon=False)
        caption = (
            "One input of three is cut off for 5 seconds. In the paper's Figure 12, undo gets slower "
            "with the rows to be undone and checkpoint with the size of the state. Here both keep "
            "blocks of memory: a checkpoint copies what is there, undo what is touched, and reading "
            "the late rows again takes longer than either."
        )
        title = "Back to the state before the failure: checkpoint and undo"
        yield Plot("silence-reconcile", title, svg[0], caption, command_of(report))


def against_bucket(measured: Measured) -> Iterator[Plot]:
    """Table 3: what larger buckets cost in delay."""
    for report in _reports(measured):
        points = sorted(
            (run["bucket_s"], run["mean_delay_ms"]) for run in report["delay_by_bucket"]
        )
        with drawing("silence-bucket", 6.0, 3.2) as (figure, svg):
            axes = figure.subplots()
            axes.plot(*zip(*points, strict=True), color=BLUE, marker="o")
            axes.set(xlabel="bucket, seconds", ylabel="mean delay of a row, ms", ylim=(0, None))
            axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.7)
        caption = (
            "Three inputs of 1,000 rows a second, no failure. In the paper's Table 3 the delay grows "
            "with the bucket from the smallest on; here an epoch of Spark hides buckets shorter than "
            "itself."
        )
        title = "What the order of several inputs costs: delay by bucket"
        yield Plot("silence-bucket", title, svg[0], caption, command_of(report))
