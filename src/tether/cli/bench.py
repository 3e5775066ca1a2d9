"""``tether bench``: run an experiment of the ``bench`` directory of a source checkout."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import tether
from tether.core.errors import BadValueError


def bench(
    name: Annotated[str, typer.Argument(help="Name of the experiment: epoch, growth, counts, …")],
    quick: Annotated[
        bool, typer.Option("--quick", help="A short form with the same goals.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the generated data.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    scenario: Annotated[
        Path | None,
        typer.Option("--scenario", help="A scenario file, where the experiment has them."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an experiment that was interrupted.")
    ] = False,
) -> None:
    """Measure; exit status 0 when it measured, whatever it measured."""
    options: dict[str, Any] = {"scenario": str(scenario)} if scenario else {}
    options |= {"resume": True} if resume else {}
    report = _measure(name, options, quick=quick, seed=seed)
    if as_json:
        print(json.dumps(report))
        return
    for result in report["results"]:
        low, high = result["spread_ms"]
        print(f"{result['contender']:45} {result['median_ms']:10.1f} ms  ({low:.1f} to {high:.1f})")
    for contender, why in report.get("skipped", {}).items():
        print(f"{contender}: left out: {why}")
    for goal in report["goals"]:
        if goal["value"] is None:
            print(f"{goal['id']}: not measured, asked {goal['target']}: {goal['why']}")
            continue
        met = "met" if goal["met"] else "NOT met"
        print(f"{goal['id']}: {goal['value']:.3f}, asked {goal['target']}: {met}")


def _measure(name: str, options: dict[str, Any], *, quick: bool, seed: int) -> dict[str, Any]:
    """Run an experiment and keep its report as JSON and CSV beside the others."""
    experiment = _experiment(name)
    taken = inspect.signature(experiment.run).parameters
    refused = sorted(option for option in options if option not in taken)
    if refused:
        raise BadValueError(
            f"The experiment {name} has no option --{refused[0]}.",
            do="Leave it out; it is for experiments with scenario files, such as peers.",
        )
    report: dict[str, Any] = experiment.run(quick=quick, seed=seed, **options)
    results = importlib.import_module("bench.results")
    saved = results.save_report(report, quick=quick)
    print(f"results: {saved.parent.name}/{saved.name}", file=sys.stderr)
    return report


def _experiment(name: str) -> Any:
    root = Path(tether.__file__).resolve().parents[2]
    folder = root / "bench"
    known = sorted(
        path.stem
        for path in folder.glob("*.py")
        if "\ndef run(" in path.read_text(encoding="utf-8") and path.stem != "__init__"
    )
    if name not in known:
        raise BadValueError(
            f"There is no experiment {name!r}.",
            why=f"Known are: {', '.join(known)}."
            if known
            else "Benchmarks come with the source only.",
            do="Run it from a source checkout." if not known else "Choose one of these.",
        )
    sys.path.insert(0, str(root))
    return importlib.import_module(f"bench.{name}")
