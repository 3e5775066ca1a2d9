"""``tether drill``: cause a failure on purpose, and report what it cost.

``tether drill run`` takes the arguments of ``tether run``: it runs the query twice on scratch
directories, once left alone and once struck, and a judge that shares no code with either compares both
answers with the rows themselves. ``tether drill strike``
kills a part of a query that is already running, and watches its checkpoint and backups until it goes on.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
import pyarrow.parquet as pq
import typer

from tether.chaos.faults import STORE_POINTS, Fault, Point
from tether.cli.plain_counts import answer_of, measure_of, together, true_counts, values_of
from tether.cli.watching import committed_epochs, failures_in
from tether.core.errors import BadValueError, TetherError
from tether.testing.injector import WORKER_POINTS
from tether.testing.judge import Failure, Told, judge
from tether.testing.processes import (
    command_of,
    descendants,
    kill,
    kill_all,
    python_workers,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tether.testing.judge import Outside

drill = typer.Typer(help="Cause a failure on purpose and report its cost.", no_args_is_help=True)

ACTIONS = {
    "worker": "kill",
    "executor": "executor",
    "state": "forget",
    "hang": "hang",
    "driver": "driver",
}
LONGEST_SECONDS = 1800.0
ROUNDING = 1e-6
"""Sums of broken numbers differ by so much when they are added in another order."""
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
FaultName = Annotated[str, typer.Option("--fault", help="worker, executor, state, hang or driver.")]


@drill.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run_drill(
    context: typer.Context,
    fault: FaultName = "worker",
    epoch: Annotated[int, typer.Option("--epoch", help="First epoch that may be struck.")] = 3,
    slot: Annotated[int | None, typer.Option("--slot", help="Which slot; any by default.")] = None,
    point: Annotated[
        str, typer.Option("--point", help="Point of the epoch protocol, or random.")
    ] = "halfway",
    seed: Annotated[int, typer.Option("--seed", help="For a random point and slot.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Run a query of ``tether run`` with and without a failure, and compare."""
    _check(fault)
    if not context.args:
        raise BadValueError(
            "Nothing was given to run.",
            do="Write the arguments of tether run after the options, for example: "
            "tether drill run --fault executor counts --input data --key user --policy …",
        )
    if any(taken in context.args for taken in ("--backup", "--checkpoint", "--answer")):
        raise BadValueError(
            "--backup, --checkpoint and --answer are the drill's own.",
            why="A drill works on scratch directories, never on those of a real query.",
            do="Leave them out.",
        )
    where = point if point != "random" else random.Random(seed).choice(WORKER_POINTS)  # noqa: S311
    known = [name for name in get_args(Point) if name not in STORE_POINTS]
    if where not in known:
        raise BadValueError(
            f"{point!r} is no point of the epoch protocol.",
            do=f"Choose one of: {', '.join(known)}, random.",
        )
    with tempfile.TemporaryDirectory(prefix="tether-drill-") as name:
        clean = _Copy(Path(name) / "clean", context.args)
        clean_summary = clean.run([])
        struck = _Copy(Path(name) / "struck", context.args)
        report = struck.strike(fault, where, epoch, slot)  # type: ignore[arg-type]
        report |= _verdict(
            pq.read_table(clean.answer), pq.read_table(struck.answer), report, context.args
        )
    report |= {"clean_seconds": clean_summary["seconds"], "point": where, "seed": seed}
    _tell(report, as_json=as_json)


@drill.command("strike")
def strike_running(
    pid: Annotated[int, typer.Option("--pid", help="Process id of the query's driver.")],
    checkpoint: Annotated[Path, typer.Option("--checkpoint", help="Its checkpoint directory.")],
    backup: Annotated[str, typer.Option("--backup", help="Its backup directory or URL.")],
    fault: FaultName = "worker",
    patience: Annotated[
        float, typer.Option("--patience", help="Most seconds to wait for it to go on.")
    ] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Kill a part of a query that runs on this machine, and watch it come back."""
    _check(fault, among=("worker", "executor", "driver"))
    if not command_of(pid):
        raise BadValueError(f"There is no process {pid}.", do="Give the driver's process id.")
    before, failures = committed_epochs(checkpoint), failures_in(backup)
    victims = _victims(pid, fault)
    began = time.monotonic()
    for victim in victims:
        kill(victim)
    wanted = before + (2 if fault != "driver" else 1)  # the one at work, and one begun after
    while committed_epochs(checkpoint) < wanted and time.monotonic() - began < patience:
        time.sleep(0.02)
    after = failures_in(backup)
    report: dict[str, Any] = {
        "fault": fault,
        "killed": len(victims),
        "went_on": committed_epochs(checkpoint) >= wanted,
        "seconds_to_next_epochs": round(time.monotonic() - began, 3),
        "slots_that_lost_state": sum(after.get(s, 0) > k for s, k in failures.items())
        + sum(s not in failures for s, k in after.items() if k),
    }
    _tell(report, as_json=as_json)


@dataclass
class _Copy:
    """A copy of the user's query on directories of its own."""

    work: Path
    arguments: list[str]

    @property
    def answer(self) -> Path:
        return self.work / "answer.parquet"

    def run(self, faults: list[Fault]) -> dict[str, Any]:
        """Let it run to its end; the summary of ``tether run --json``."""
        process = self.start(faults)
        try:
            said, _ = process.communicate(timeout=LONGEST_SECONDS)
        finally:
            kill_all(process.pid)
        if process.returncode != 0:
            raise TetherError(
                "The copy of the query failed.",
                why=(self.work / "log").read_text(encoding="utf-8", errors="replace")[-600:],
                do="Run the same arguments with tether run first.",
            )
        summary: dict[str, Any] = json.loads(said.splitlines()[-1])
        return summary

    def start(self, faults: list[Fault]) -> subprocess.Popen[str]:
        self.work.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-c", "from tether.cli.app import main; main()", "run"]
        command += [*self.arguments, "--backup", str(self.work / "backup"), "--json", "--story"]
        command += ["--checkpoint", str(self.work / "checkpoint"), "--answer", str(self.answer)]
        if "--arena-scope" not in self.arguments:
            command += ["--arena-scope", "executor"]
        environment = {**os.environ, "TETHER_FAULTS": msgspec.json.encode(faults).decode()}
        with (self.work / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )

    def strike(self, fault: str, point: Point, epoch: int, slot: int | None) -> dict[str, Any]:
        """Run it, struck once; what it lost, and how long its recoveries took."""
        restarts = 0
        if fault == "driver":
            process = self.start([])
            deadline = time.monotonic() + LONGEST_SECONDS
            while committed_epochs(self.work / "checkpoint") <= epoch and process.poll() is None:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)
            struck = kill_all(process.pid) > 0 and process.wait() != 0
            restarts = 1
            summary = self.run([])
        else:
            marker = self.work / "struck"
            self.work.mkdir(parents=True, exist_ok=True)
            planned = Fault(
                point="before-attach" if fault == "state" else point,
                marker=str(marker),
                slot=slot,
                epoch=epoch,
                action=ACTIONS[fault],  # type: ignore[arg-type]
            )
            try:
                summary = self.run([planned])
            except TetherError:
                if not marker.exists():
                    raise
                # Some faults end the whole job: in local mode its JVM is the executor, too.
                restarts, summary = 1, self.run([planned])
            struck = marker.exists()
        recoveries = [event for event in summary["story"] if event["what"] == "recovery"]
        return {
            "fault": fault,
            "struck": struck,
            "restarts": restarts,
            "struck_seconds": summary["seconds"],
            "recoveries": [
                {name: event["detail"][name] for name in ("exact", "bound", "bytes", "seconds")}
                | {"slot": event["slot"], "epoch": event["epoch"]}
                for event in recoveries
            ],
            "bound": summary["bound"],
            **_healing(summary["story"]),
        }


def _healing(story: list[dict[str, Any]]) -> dict[str, Any]:
    """How a query that answered tentatively, or within its bound, became exact again; if it did."""
    told = ("tentative", "healing", "twin", "twin-lost", "no-twin", "taken-over")
    events = [event for event in story if event["what"] in told]
    if not events:
        return {}
    began = float(events[0]["at"])
    return {
        "healing": [
            {
                "what": event["what"],
                "epoch": event["epoch"],
                "seconds": round(float(event["at"]) - began, 3),
                "cause": event["cause"],
            }
            for event in events
        ]
    }


def _victims(pid: int, fault: str) -> list[int]:
    if fault == "driver":
        return [pid, *descendants(pid)]
    found = (
        python_workers(pid)
        if fault == "worker"
        else [p for p in descendants(pid) if "CoarseGrainedExecutorBackend" in command_of(p)]
    )
    if not found:
        raise BadValueError(
            f"Process {pid} has no {fault} on this machine.",
            why="In local mode the driver is the executor; idle Python workers end by themselves."
            if fault == "executor"
            else "No Python worker of it is alive now.",
            do="Choose another --fault, or strike on the machine where they are.",
        )
    return found[:1]


def _verdict(
    clean: pa.Table, struck: pa.Table, report: dict[str, Any], arguments: list[str]
) -> dict[str, Any]:
    """How far both answers are from the rows themselves, and whether each is within its bound."""
    measure = measure_of(arguments)
    truth, answers = true_counts(arguments), [answer_of(one, arguments) for one in (clean, struck)]
    # A query that was started again gives the keys that have come since; the others are not in it.
    keys = set(answers[1]["count"]) if report["restarts"] else None
    right = together(truth, keys)
    spent = float(report["bound"]["spent"])
    lost = [Failure(epoch=0, what=report["fault"])] if report["recoveries"] else []
    rounding = ROUNDING if values_of("--sum", arguments) else 0.0
    outside: list[list[Outside]] = []
    for failures, told in (([], 0.0), (lost, spent)):
        answer = together(answers[len(outside)], keys)
        given = [Told(epoch=0, answer=answer, spent=told)]
        verdict = judge(
            [arguments], lambda _: [right], failures, given, {"": measure}, rounding=rounding
        )
        outside.append(verdict.outside)
    return {
        "error": float(measure.distance(right[""], together(answers[1], keys)[""])),
        "error_is": "the worst key's" if measure.norm == "max" else "the sum over all keys",
        "within_bound": not outside[1],
        "clean_is_right": not outside[0],
        "keys": len(truth["count"]),
    }


def _check(fault: str, among: tuple[str, ...] = tuple(ACTIONS)) -> None:
    if fault not in among:
        raise BadValueError(f"{fault!r} is no fault.", do=f"Choose one of: {', '.join(among)}.")


def _tell(report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        print(f"{name.replace('_', ' ')}: {value}")
