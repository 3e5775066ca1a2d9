"""``tether bench``: run an experiment of the ``bench`` directory of a source checkout."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import tether
from tether.core.errors import BadValueError


def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the experiment: epoch, growth, counts, peers, …; "
            "all: every one, then the report; report: the page made of the results that are there."
        ),
    ],
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
    into: Annotated[
        Path | None, typer.Option("--into", help="Folder for the report; bench/results by default.")
    ] = None,
) -> None:
    """Measure; exit status 0 when it measured, whatever it measured."""
    if name == "report":
        _report(into, as_json=as_json)
        return
    if name == "all":
        _all(quick=quick, seed=seed, resume=resume)
        _report(into, as_json=as_json)
        return
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
    taken = _options_of(name)
    refused = sorted(option for option in options if option not in taken)
    if refused:
        raise BadValueError(
            f"The experiment {name} has no option --{refused[0]}.",
            do="Leave it out; it is for experiments with scenario files, such as peers.",
        )
    report: dict[str, Any] = experiment.run(quick=quick, seed=seed, **options)
    scenario = options.get("scenario")
    words = ["tether bench", name, "--quick" if quick else "", f"--seed {seed}"]
    words.append(f"--scenario {_relative(scenario)}" if scenario else "")
    report["command"] = " ".join(filter(None, words))
    results = importlib.import_module("bench.results")
    variant = Path(scenario).stem if scenario else ""
    saved = results.save_report(report, quick=quick, variant=variant)
    print(f"results: bench/{saved.parent.name}/{saved.name}", file=sys.stderr)
    return report


def _relative(path: str) -> str:
    """A path as one would type it at the checkout's root."""
    whole = Path(path).resolve()
    return str(whole.relative_to(_root())) if whole.is_relative_to(_root()) else path


def _all(*, quick: bool, seed: int, resume: bool) -> None:
    """Every experiment, each in a process and a Spark of its own; one that fails stops no other."""
    _check("peers")
    results = importlib.import_module("bench.results")
    scenarios = sorted((_root() / "bench" / "scenarios").glob("*.toml"))
    covered = importlib.import_module("bench.peers").FIRST  # run where no scenario is named
    runs = [(name, "") for name in _known()]
    runs += [("peers", str(path)) for path in scenarios if path.name not in covered]
    for number, (name, scenario) in enumerate(runs, 1):
        stem = results.file_name(name, quick=quick, variant=Path(scenario).stem)
        if resume and (results.FOLDER / f"{stem}.json").is_file():
            continue
        program = "from tether.cli.app import main; main()"
        command = [sys.executable, "-c", program, "bench", name, "--seed", str(seed)]
        command += ["--quick"] if quick else []
        command += ["--resume"] if resume and "resume" in _options_of(name) else []
        command += ["--scenario", scenario] if scenario else []
        print(f"bench: {number} of {len(runs)}: {stem}", file=sys.stderr, flush=True)
        done = subprocess.run(command, stdout=sys.stderr, check=False)  # noqa: S603 - ourselves
        if done.returncode:
            print(f"bench: {stem} failed with status {done.returncode}", file=sys.stderr)


def _report(into: Path | None, *, as_json: bool) -> None:
    """Write the page; say where it is."""
    _check("peers")
    folder = importlib.import_module("bench.results").FOLDER
    report = importlib.import_module("bench.report")
    pages = report.write_report(folder, into or folder, _known())
    if as_json:
        print(json.dumps({"pages": [str(page) for page in pages]}))
        return
    for page in pages:
        print(page)


def _root() -> Path:
    return Path(tether.__file__).resolve().parents[2]


def _known() -> list[str]:
    """Experiments of the checkout: modules of ``bench`` with a function ``run``."""
    return sorted(
        path.stem
        for path in (_root() / "bench").glob("*.py")
        if "\ndef run(" in path.read_text(encoding="utf-8")
    )


def _check(name: str) -> None:
    """Make the checkout's ``bench`` importable, if it has this experiment."""
    known = _known()
    if name not in known:
        raise BadValueError(
            f"There is no experiment {name!r}.",
            why=f"Known are: {', '.join(known)}."
            if known
            else "Benchmarks come with the source only.",
            do="Run it from a source checkout." if not known else "Choose one of these.",
        )
    sys.path.insert(0, str(_root()))
    # Spark's Python workers import contenders too, wherever the command was typed.
    paths = [str(_root()), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _experiment(name: str) -> Any:
    _check(name)
    return importlib.import_module(f"bench.{name}")


def _options_of(name: str) -> set[str]:
    return set(inspect.signature(_experiment(name).run).parameters)
