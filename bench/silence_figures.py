"""Silences for the record: against αX, the length of a chain, the size of state and the rate.

DPC 2005, Figures 9, 11 and 12. ``tether bench reconcile`` measures all of them; this module by itself
some of them, and draws them.
"""

from __future__ import annotations

import argparse
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tether
from bench.chains import chained
from bench.harness import say
from bench.report.load import Measured
from bench.report.silences import against_alpha, along_a_chain, checkpoint_and_undo
from bench.results import FOLDER, ResultLog
from bench.silences import silenced
from tether.cli.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

X, ALPHA = 3.0, 0.75
"""Seconds, and the part of them that rows wait. Not the paper's 0.9: an epoch of Spark takes longer
than a tenth of X, and one may be in hand already when a row's time is over."""
WAYS: list[tuple[Any, Any, Any]] = [
    ("process", "process", "checkpoint"),
    ("delay", "delay", "checkpoint"),
    ("process", "delay", "checkpoint"),
    ("delay", "process", "undo"),
    ("process", "suspend", "undo"),
    ("delay", "suspend", "checkpoint"),
]
"""All six ways to handle a failure; both ways to reconcile among them."""
PLOTS = {
    "figure_9": against_alpha,
    "figure_11": along_a_chain,
    "figure_12": checkpoint_and_undo,
}


@cache
def warm_up(session: SparkSession) -> None:
    """Java and Python warm up with a failure that does not count.

    The first tentative epoch of a session takes a second more than all later ones.
    """
    silenced(session, tether.Available(delay=X, alpha=ALPHA), 5)


def runs_of(session: SparkSession) -> dict[str, Sequence[Callable[[], dict[str, Any]]]]:
    """The runs of each figure; nothing is run yet."""
    by_alpha = [
        partial(silenced, session, tether.Available(delay=delay, alpha=alpha, failure=failure), 5)
        for failure in ("process", "delay")
        # αX from 0.6 s to longer than the failure.
        for delay, alpha in ((X, 0.2), (X, 0.5), (X, 0.8), (6.0, 0.75), (8.0, 0.75))
    ]
    by_state = [
        partial(
            silenced,
            session,
            tether.Available(delay=X, alpha=0.4, reconcile=reconcile),
            5,
            entries=entries,
            rate=rate,
        )
        for reconcile in ("checkpoint", "undo")
        for entries, rate in (
            *((entries, 1_500) for entries in (0, 1_000_000, 4_000_000)),
            *((0, rate) for rate in (6_000, 15_000)),
        )
    ]
    by_length = [
        partial(
            chained,
            session,
            tether.Available(
                delay=X, alpha=ALPHA, failure=failure, stabilization=stabilization, reconcile=way
            ),
            length,
            6,
        )
        for failure, stabilization, way in (WAYS[0], WAYS[1], WAYS[4])
        for length in (1, 2, 3)
    ]
    return {"figure_9": by_alpha, "figure_12": by_state, "figure_11": by_length}


def figure_runs(
    session: SparkSession,
    log: ResultLog,
    names: tuple[str, ...] = tuple(PLOTS),
    first: int | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """All runs of some figures, or the first of each; those that the log has are not run again."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, runs in runs_of(session).items():
        if name not in names:
            continue
        found[name] = []
        runs = runs[:first]  # noqa: PLW2901 - all of them, but for a try
        if any(log.get(name, number) is None for number in range(len(runs))):
            warm_up(session)
        for number, run_one in enumerate(runs):
            found[name].append(log.once(name, number, run_one))
            say(f"reconcile: {name}, {number + 1} of {len(runs)}: {found[name][-1]}")
    return found


def main() -> None:
    """Some figures, measured and drawn."""
    parser = argparse.ArgumentParser(prog="python -m bench.silence_figures", description=__doc__)
    parser.add_argument("figures", nargs="+", choices=list(PLOTS))
    parser.add_argument("--resume", action="store_true", help="go on with what is there")
    parser.add_argument("--images", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--first", type=int, help="only so many runs of each, to try it out")
    chosen = parser.parse_args()
    name = "figures.jsonl" if chosen.first is None else "figures-tried.jsonl"
    log = ResultLog(FOLDER / "reconcile" / name, {"x": X, "alpha": ALPHA}, resume=chosen.resume)
    session = open_session("local[2,4]", memory="4g")
    found = figure_runs(session, log, tuple(chosen.figures), chosen.first)
    report = {
        "experiment": "reconcile",
        "command": "python -m bench.silence_figures " + " ".join(chosen.figures),
        "silences": [],
        "figures": found,
    }
    measured = Measured({"reconcile": report}, [])
    for name in chosen.figures:
        for plot in PLOTS[name](measured):
            target = chosen.images / f"measured-{plot.name}.svg"
            target.write_text(plot.svg + "\n", encoding="utf-8")
            say(f"reconcile: {target}")


if __name__ == "__main__":
    main()
