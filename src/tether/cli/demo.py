"""``tether demo``: a stream that survives real failures within its bound, shown live."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow.parquet as pq
import typer

from tether.cli.demo_data import write_words
from tether.cli.demo_view import DemoView
from tether.core.errors import TetherError
from tether.testing.judge import Failure, Measure, Told, judge
from tether.testing.processes import kill, kill_all, python_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tether.testing.judge import Outside

SILENCE_SECONDS = 180.0
"""A job that says nothing for so long is taken for dead."""


def demo(
    epochs: Annotated[int, typer.Option(help="Micro-batches to run.")] = 24,
    words: Annotated[int, typer.Option(help="Words in each.")] = 160_000,
    bound: Annotated[
        float, typer.Option(help="Most that any word's count may be wrong by.")
    ] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of the generated text.")] = 1,
    costs: Annotated[bool, typer.Option(help="Also measure what the tolerance costs.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count words while processes are killed; show the answer beside the truth and the bound."""
    view = DemoView(quiet=as_json)
    policy = f"approximate:max_state_error={bound:g}"
    with tempfile.TemporaryDirectory(prefix="tether-demo-") as name, view:
        work = Path(name)
        view.say(f"Writing {epochs * words:,} words …")
        truth = write_words(work / "in", epochs=epochs, words_per_epoch=words, seed=seed)
        arguments = [str(work / "in"), policy, str(work), "costs" if costs else ""]
        job, events, result = _survive(arguments, work / "job.log", epochs, words, view)
        try:
            answer = pq.read_table(work / "answer.parquet")
            error, outside = _judged(work / "in", answer, result)
            result |= {
                "words": epochs * words,
                "worst_error": error,
                "within": not outside,
            }
            view.verdict(answer, truth, result)
            result["costs"] = _costs(events, view) if costs else []
        finally:
            kill_all(job.pid)
            job.wait()
        view.costs(result["costs"])
    if as_json:
        print(json.dumps(result))
    if not result["within"]:
        raise TetherError(
            f"The worst error, {error}, is above the bound {result['spent']}.",
            do="Please report it: the bound must hold.",
        )


def _judged(source: Path, answer: pa.Table, result: dict[str, Any]) -> tuple[int, list[Outside]]:
    """The worst error of any word, and what a judge that shares no code with the job has against it."""
    counted: Counter[str] = Counter()
    for file in sorted(source.glob("*.parquet")):
        counted.update(pq.read_table(file)["word"].to_pylist())
    found = dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))
    told = Told(
        epoch=0, answer={"": found}, spent=result["spent"], ceiling=float(result["promised"])
    )
    lost = [Failure(epoch=0, what=", ".join(result["killed"]))]
    measure = Measure("max")
    verdict = judge([source], lambda _: [{"": dict(counted)}], lost, [told], {"": measure})
    return int(measure.distance(counted, found)), verdict.outside


def _survive(
    arguments: list[str], log: Path, epochs: int, words: int, view: DemoView
) -> tuple[subprocess.Popen[str], Iterator[dict[str, Any]], dict[str, Any]]:
    """Run the job until it has its answer, killing a worker at a third and all of it at two thirds."""
    plan = [("a Python worker", epochs // 3), ("the whole job, driver and all", 2 * epochs // 3)]
    killed: list[str] = []
    recoveries: list[dict[str, Any]] = []
    while True:
        job = _start("tether.cli.demo_job", arguments, log)
        events = _events(job)
        try:
            for event in events:
                if event["event"] == "progress":
                    view.progress(event, epochs, words)
                    if plan and plan[0][1] <= event["epochs"] < epochs:
                        victim = plan[0][0]
                        if _strike(victim, job.pid):
                            plan.pop(0)
                            killed.append(victim)
                            view.say(f"[red]SIGKILL[/red] {victim}, after epoch {event['epochs']}")
                            if "worker" in victim:
                                view.say("  state is not in the worker: nothing is lost with it")
                elif event["event"] == "story":
                    view.story(event)
                    if event["what"] == "recovery":
                        recoveries.append(event["detail"])
                elif event["event"] == "done":
                    bound = {name: event[name] for name in ("spent", "promised")}
                    return job, events, {"killed": killed, "recoveries": recoveries, **bound}
        except BaseException:
            kill_all(job.pid)
            raise
        kill_all(job.pid)
        job.wait()
        if not killed or not killed[-1].startswith("the whole job"):
            raise TetherError(
                "The demo's job ended by itself.",
                why=log.read_text()[-2000:],
                do="Is Java 17 or newer there? Try: make setup",
            )
        view.say("The job is dead. Starting it again from its checkpoint and backup …")


def _strike(victim: str, job: int) -> bool:
    if victim.startswith("the whole job"):
        return kill_all(job) > 0
    workers = python_workers(job)
    return bool(workers) and kill(workers[-1])


def _costs(events: Iterator[dict[str, Any]], view: DemoView) -> list[dict[str, Any]]:
    """The job goes on with them when it has given its answer: its Spark is there, and warm."""
    view.say("The same stream without failures, side by side …")
    return [event for event in events if event["event"] == "cost"]


def _start(module: str, arguments: list[str], log: Path) -> subprocess.Popen[str]:
    with log.open("ab") as errors:
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def _events(job: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The job's lines as they come, until it ends or falls silent."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert job.stdout is not None
        for line in job.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    last = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=1)
        except queue.Empty:
            if time.monotonic() - last > SILENCE_SECONDS:
                raise TetherError(
                    f"The job has said nothing for {SILENCE_SECONDS:g} s.", do="Try again."
                ) from None
            continue
        if line is None:
            return
        last = time.monotonic()
        if line.startswith("{"):
            yield json.loads(line)
