"""Plans of copies: what fidelity promises, what answers keep, and planners compared (PPA 2016 §VI)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.report.load import command_of
from bench.report.style import BLUE, GREEN, GREY, ORANGE, Plot, drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report.load import Measured

TITLES = {
    "q1": "Q1, top 100 of a window",
    "q1-spread": "Q1, all servers alike",
    "q2": "Q2, incidents with jams",
}


def _reports(measured: Measured) -> Iterator[dict[str, Any]]:
    for report in measured.reports.values():
        if report["experiment"] == "planning" and "figure_14" in report:
            yield report


def _line(axes: Any, points: list[dict[str, Any]], planner: str, y: str, **how: Any) -> None:
    some = [point for point in points if point["planner"] == planner]
    axes.plot([point["copies"] for point in some], [point[y] for point in some], **how)


def _panel(axes: Any, query: str) -> None:
    axes.set(xlabel="copies", ylim=(-0.03, 1.05), title=TITLES.get(query, query))
    axes.grid(visible=True, color="#dddddd", linewidth=0.7)


def fidelity_and_accuracy(measured: Measured) -> Iterator[Plot]:
    """Figure 12: both metrics beside the accuracy of the answers."""
    for report in _reports(measured):
        with drawing("planning-accuracy", 9.6, 3.6) as (figure, svg):
            queries = report["figure_12_13"]
            every = figure.subplots(1, len(queries), sharey=True)
            for axes, (query, points) in zip(every, queries.items(), strict=True):
                aware, other = "structure-aware", "completeness"
                _line(axes, points, aware, "predicted", color=BLUE, label="fidelity (OF)")
                _line(axes, points, aware, "accuracy", color=BLUE, marker="o", ls="none")
                _line(axes, points, other, "predicted", color=ORANGE, label="completeness (IC)")
                _line(axes, points, other, "accuracy", color=ORANGE, marker="s", ls="none")
                _panel(axes, query)
            every[0].legend(frameon=False, fontsize=8)
        caption = (
            "Lines: what a plan made for that metric promises; marks: which part of the true answer was "
            "left with all slots lost that have no copy. As in the paper's figure 12, both metrics "
            "predict top-k, and only fidelity predicts the join: plans made for completeness copy slots "
            "whose rows find no partner. Where all servers get the same requests, the rest is a sample "
            "that is good enough for most of the answer, and fidelity is too low."
        )
        title = "Does fidelity predict the answer?"
        yield Plot("planning-accuracy", title, svg[0], caption, command_of(report))


def planners_on_queries(measured: Measured) -> Iterator[Plot]:
    """Figure 13: planners on the two queries."""
    for report in _reports(measured):
        with drawing("planning-queries", 9.0, 3.6) as (figure, svg):
            queries = {q: p for q, p in report["figure_12_13"].items() if q in ("q1", "q2")}
            every = figure.subplots(1, len(queries), sharey=True)
            for axes, (query, points) in zip(every, queries.items(), strict=True):
                for planner, colour, mark in (
                    ("dynamic-programming", GREY, "D"),
                    ("structure-aware", BLUE, "o"),
                    ("greedy", ORANGE, "s"),
                ):
                    _line(axes, points, planner, "predicted", color=colour, label=planner)
                    _line(axes, points, planner, "accuracy", color=colour, marker=mark, ls="none")
                _panel(axes, query)
            every[0].legend(frameon=False, fontsize=8)
        caption = (
            "Lines: fidelity; marks: measured accuracy. As in the paper's figure 13, structure-aware is "
            "on the best plan there is, or next to it; greedy has no output until it happens upon a "
            "complete tree."
        )
        title = "Planners on the paper's queries"
        yield Plot("planning-queries", title, svg[0], caption, command_of(report))


def random_topologies(measured: Measured) -> Iterator[Plot]:
    """Figure 14: structure-aware and greedy on random topologies."""
    for report in _reports(measured):
        rows = report["figure_14"]
        pairs: dict[str, list[str]] = {}
        for name in dict.fromkeys(row["specification"] for row in rows):
            pairs.setdefault(name.split(":")[0], []).append(name)
        with drawing("planning-random", 9.6, 6.0) as (figure, svg):
            every = figure.subplots(2, 2, sharey=True).flat
            for axes, (varied, names) in zip(every, pairs.items(), strict=True):
                for name, colour in zip(names, (BLUE, GREEN), strict=True):
                    some = [row for row in rows if row["specification"] == name]
                    shares = [row["share"] for row in some]
                    kind = name.split(": ")[1]
                    for planner, style in (("structure-aware", "-"), ("greedy", "--")):
                        label = f"{kind}, {planner}"
                        values = [row[planner] for row in some]
                        axes.plot(shares, values, style, color=colour, marker="o", label=label)
                axes.set(xlabel="part of the slots that is copied", title=varied)
                axes.grid(visible=True, color="#dddddd", linewidth=0.7)
                axes.legend(frameon=False, fontsize=8)
        caption = (
            "Mean fidelity over random topologies of 5 to 10 operators. As in the paper's figure 14, "
            "the gap is widest where few slots may be copied, and narrow on full topologies: which "
            "slots of an operator are best does not depend on others there. Joins cost fidelity."
        )
        title = "Planners on random topologies"
        yield Plot("planning-random", title, svg[0], caption, command_of(report))
