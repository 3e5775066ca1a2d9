"""After a kill: seconds until output goes on, what of it, and what copies cost (PPA 2016 §VI-A)."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from bench.report.load import command_of
from bench.report.style import BLUE, GREEN, GREY, ORANGE, Plot, drawing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report.load import Measured


def _reports(measured: Measured) -> Iterator[dict[str, Any]]:
    for report in measured.reports.values():
        if report["experiment"] == "availability" and "failures" in report:
            yield report


def _grid(axes: Any) -> None:
    axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.7)


def recovery_latency(measured: Measured) -> Iterator[Plot]:
    """Figures 7, 8 and 10: with a copy, without, and half of each."""
    for report in _reports(measured):
        runs = report["failures"]
        with drawing("availability-latency", 9.0, 3.6) as (figure, svg):
            one, other = figure.subplots(1, 2)
            for name, colour in (("passive", ORANGE), ("active", BLUE)):
                waits = sorted({run["behind"] for run in runs if run["name"] == name})
                each = [
                    [r["output"] for r in runs if r["name"] == name and r["behind"] == behind]
                    for behind in waits
                ]
                label = {"active": "with a copy", "passive": "without"}[name]
                one.plot(waits, [statistics.median(x) for x in each], color=colour, label=label)
                for behind, seconds in zip(waits, each, strict=True):
                    one.plot([behind] * len(seconds), seconds, "o", color=colour, alpha=0.4)
            one.set(xlabel="epochs since the snapshot", ylabel="seconds to the next output")
            one.set(ylim=(0, None), title="One executor is killed")
            one.legend(frameon=False, fontsize=8)
            half = [run for run in runs if run["name"] == "half"]
            kinds = {"first tentative rows": "tentative", "exact again": "recovered"}
            for at, (label, what) in enumerate(kinds.items()):
                seconds = [run[what] for run in half]
                other.bar(at, statistics.median(seconds), color=(BLUE, ORANGE)[at], width=0.6)
                other.plot([at] * len(seconds), seconds, "o", color=GREY, alpha=0.6)
                other.text(at, 0, f" {label}", rotation=90, va="bottom", ha="center", fontsize=8)
            other.set(ylabel="seconds after the kills", xticks=[])
            other.set_title("All but the standby executor are killed, half copied")
            _grid(one)
            _grid(other)
        caption = (
            "SIGKILL of executors of a cluster on loopback; dots are single failures, lines and bars "
            "medians. As in the paper's figures 7 and 8, output of slots with a copy goes on after "
            "about the same time however old the snapshot is, and without one the later the older "
            "it is. As in its figure 10 (PPA-0.5), tentative output of what has copies comes long "
            "before all is recovered. The paper counts from the detection of a failure, by heartbeats "
            "of 5 seconds; here detection is included."
        )
        title = "How soon output goes on after a kill"
        yield Plot("availability-latency", title, svg[0], caption, command_of(report))


def fidelity_through_failures(measured: Measured) -> Iterator[Plot]:
    """Racks that fail, and all nodes but those that stand by, in the simulator."""
    for report in _reports(measured):
        if not report["racks"]:
            continue
        with drawing("availability-racks", 9.0, 3.6) as (figure, svg):
            axes = figure.subplots(1, 1)
            colours = {0.0: GREY, 0.25: GREEN, 0.5: ORANGE, 1.0: BLUE}
            for run in report["racks"]:
                style = "-" if run["size"] == "paper" else ":"
                label = f"{run['nodes']:,} nodes, {run['share']:.0%} copied"
                epochs = range(len(run["fidelity"]))
                colour = colours[run["share"]]
                axes.step(epochs, run["fidelity"], style, where="post", color=colour, label=label)
            axes.set(xlabel="epoch", ylabel="fidelity of the rows", ylim=(-0.03, 1.05))
            axes.legend(frameon=False, fontsize=8, loc="lower left")
            _grid(axes)
        caption = (
            "Simulated with the engine itself, at the size of the paper's cluster and with a thousand "
            "nodes: a rack dies, then all nodes but those that stand by. Output goes on in the same "
            "epoch; its fidelity is at least that of the plan, and 1 again when the twin has taken over."
        )
        title = "What goes on when nodes fail together"
        yield Plot("availability-racks", title, svg[0], caption, command_of(report))


def cost_of_copies(measured: Measured) -> Iterator[Plot]:
    """What copies cost while nothing fails, as figure 9 does for checkpoints."""
    for report in _reports(measured):
        results = report["results"]
        with drawing("availability-cost", 6.4, 2.4) as (figure, svg):
            axes = figure.subplots(1, 1)
            for at, result in enumerate(results):
                axes.barh(-at, result["median_ms"], color=(GREY, ORANGE, BLUE)[at % 3], height=0.6)
                axes.plot(result["runs_ms"], [-at] * len(result["runs_ms"]), "o", color="#444444")
            axes.set(yticks=[-at for at in range(len(results))], xlabel="ms an epoch")
            axes.set_yticklabels([result["contender"] for result in results])
        caption = (
            "An epoch without failures. Rows of copied slots are shuffled and processed twice. The "
            "paper's figure 9 shows the price of checkpoints instead, which grows as they become "
            "frequent; it gives none for copies, which run on nodes of their own there."
        )
        title = "What copies cost"
        yield Plot("availability-cost", title, svg[0], caption, command_of(report))
