"""Peers outside Spark: each in a virtual environment of its own, run as a program of its own.

A job runs the same statement twice in one process: over the uncounted epochs only, and over all. The
difference is the time of the measured ones, free of start-up, planning and loading, and is shared out
among them.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Measurement, NotHere
from bench.inputs import Digest, columns_of
from bench.streams import scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.course import Course

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "bench" / "peer_jobs"
MOST_SECONDS = 900


def flink(
    course: Course,
    statement: dict[str, Any],
    to_answer: Callable[[list[Any]], Any],
    *,
    api: str,
    state: str,
    checkpoints: bool,
) -> Measurement:
    """A PyFlink job.

    Args:
        course: What it runs over.
        statement: What the job computes, in the fields that ``peer_jobs/flink.py`` takes.
        to_answer: From the job's row of numbers to an answer.
        api: ``table``, ``datastream``, or ``reading`` for the input alone.
        state: ``hashmap`` or ``rocksdb``.
        checkpoints: Whether there are any.
    """
    python = _python_of(".venv-flink", "pyflink", "PyFlink")
    scenario = course.scenario
    if api == "datastream" and not statement["columns"]:
        raise NotHere("the DataStream job computes the keyed sum only")
    job: dict[str, Any] = {
        **statement,
        "api": api,
        "state": state,
        "interval": scenario.interval if checkpoints else None,
        "slots": scenario.slots,
    }
    with scratch() as directory:
        paths = {"all": course.csv, "uncounted": _first(course, course.csv, directory / "first")}
        job["paths"] = {name: str(path) for name, path in paths.items()}
        job["checkpoints"] = str(directory / "checkpoints")
        found = _run(python, JOBS / "flink.py", job)
    return _measured(course, found, to_answer(found.pop("answer")), "PyFlink")


def bytewax(course: Course) -> Measurement:
    """A Bytewax dataflow with recovery on, its state snapshot every second."""
    python = _python_of(".venv-bytewax", "bytewax", "Bytewax")
    scenario = course.scenario
    if scenario.algorithm != "keyed-sum":
        raise NotHere("the Bytewax job computes the keyed sum only")
    source = course.written().source
    with scratch() as directory:
        first = _first(course, source, directory / "first")
        job: dict[str, Any] = {
            "columns": columns_of(scenario),
            "slots": scenario.slots,
            "interval": scenario.interval,
            "paths": {"all": str(source), "uncounted": str(first)},
            "recovery": str(directory / "recovery"),
        }
        found = _run(python, JOBS / "bytewax_sums.py", job)
    return _measured(course, found, Digest(*map(int, found.pop("answer"))), "Bytewax")


def versions() -> dict[str, str]:
    """Versions of the peers that are installed in environments of their own."""
    found = {}
    for folder, package in ((".venv-flink", "apache_flink"), (".venv-bytewax", "bytewax")):
        for path in ROOT.glob(f"{folder}/lib/python*/site-packages/{package}-*.dist-info"):
            found[package.replace("_", "-")] = path.name.split("-")[1].removesuffix(".dist")
    return found


def _python_of(folder: str, module: str, name: str) -> Path:
    """The Python of a peer's environment.

    Raises:
        NotHere: It has not been made, or could not be.
    """
    python = ROOT / folder / "bin" / "python"
    command = [str(python), "-c", f"import {module}"]
    if not python.exists() or subprocess.run(command, capture_output=True, check=False).returncode:
        raise NotHere(f"{name} is not installed in {folder}; do: make peers")
    return python


def _first(course: Course, source: Path, target: Path) -> Path:
    """A folder with the uncounted epochs' files alone."""
    target.mkdir()
    for path in sorted(source.iterdir())[: course.scenario.uncounted]:
        os.link(path, target / path.name)
    return target


def _run(python: Path, script: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in its environment; it prints one JSON object as its last line.

    Raises:
        NotHere: It failed; the end of what it said is given as the reason.
    """
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONHOME"}
    # Python inside Flink's JVM knows nothing of the environment that it belongs to.
    packages = (python.parents[1] / "lib").glob("python*/site-packages")
    variables["PYTHONPATH"] = os.pathsep.join(map(str, packages))
    command = [str(python), str(script), json.dumps(job)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            env=variables | _java(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"it took longer than {MOST_SECONDS} s") from None
    if done.returncode:
        said = " ".join(done.stderr.split()[-60:])
        raise NotHere(f"it failed with status {done.returncode}: {said}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _java() -> dict[str, str]:
    """The Java that ``make setup`` chose, for programs started without ``scripts/run``."""
    chosen = Path(sys.prefix) / "tether-env"
    if "JAVA_HOME" in os.environ or not chosen.is_file():
        return {}
    words = shlex.split(chosen.read_text(encoding="utf-8"))
    return dict(word.split("=", 1) for word in words)


def _measured(course: Course, found: dict[str, Any], answer: Any, name: str) -> Measurement:
    seconds = found["all_seconds"] - found["uncounted_seconds"]
    if seconds <= 0:
        raise NotHere(f"{name}'s run over all epochs was no longer than over the uncounted ones")
    each = 1_000 * seconds / course.scenario.epochs
    return course.measurement([each], answer, found)
