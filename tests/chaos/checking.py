"""Running one cell of the matrix, and holding it against the truth and its policy's promise."""

from __future__ import annotations

import dataclasses
import gc
import math
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos import jobs, running
from tests.chaos.jobs import Job
from tests.chaos.matrix import EXACT, POLICIES, REPLAYS
from tests.chaos.running import BOUNDS, Outcome, Run
from tests.chaos.workloads import WORKLOADS
from tests.kills import OF_DRIVER
from tests.refusals import or_skip

from tether.testing.bundle import explained_run
from tether.testing.epochs import write_epochs
from tether.testing.injector import Injector
from tether.testing.judge import Failure, Told, judge
from tether.testing.leftovers import is_locked

if TYPE_CHECKING:
    from tests.chaos.matrix import Case

    from tether.testing.judge import Outside


def check(spark: Any, work: Path, case: Case) -> list[tuple[str, str]]:
    """Run a cell and compare; gives who was killed at which points."""
    workload = WORKLOADS[case.workload]
    epochs = running.EPOCHS if case.kind.process is None else jobs.EPOCHS
    tables = workload.tables(epochs)
    write_epochs(work / "in", tables)
    injector = Injector(work / "strikes", seed=case.seed)
    hook = case.kind.plan(injector, workload, case.point)
    with ExitStack() as stack:
        stories: list[Any] = []
        stack.enter_context(explained_run(work, injector=injector, stories=stories))
        if case.kind.process is None:
            outcome = _in_session(spark, work, case, injector, hook=hook, stories=stories)
        else:
            outcome = _as_process(work, case, injector)
        assert injector.struck(), "nothing was struck: this cell shows nothing"
        if outcome.ended is None:
            _compare(case, tables, outcome)
    return _killed(case, injector)


def _killed(case: Case, injector: Injector) -> list[tuple[str, str]]:
    # In Spark's local mode an executor and the driver are one process.
    apart = case.kind.process is not None and not case.kind.process.restarts
    executor = "executor" if apart else "driver"
    found = []
    for fault in injector.faults:
        if fault.action in ("kill", "executor") and Path(fault.marker).exists():
            own = "driver" if fault.point in OF_DRIVER else "worker"
            found.append((own if fault.action == "kill" else executor, str(fault.point)))
    return found


def open_files_after(seconds: float, work: Path) -> list[str]:
    """Files below a directory that this process holds open, once it has had time to let them go.

    What only an error's trace still holds is no leak: it is let go when the trace is collected.
    """
    deadline = time.monotonic() + seconds
    while True:
        gc.collect()
        held = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
        left = [str(path) for path in held if path.is_relative_to(work)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _in_session(
    spark: Any, work: Path, case: Case, injector: Injector, *, hook: Any, stories: list[Any]
) -> Outcome:
    workload = WORKLOADS[case.workload]
    policy = POLICIES[case.policy](workload.theta)
    with ExitStack() as stack:
        disk = None
        if case.kind.small_disk:
            disk = stack.enter_context(or_skip(injector.full_disk(4 << 20)))
        run = Run(spark, work, workload, policy, injector.faults, hook, disk, stories=stories)
        outcome = run.go(case.kind.stops, case.kind.ends if case.policy in EXACT else ())
        # A query that was stopped has let go of everything, in this process too.
        assert not is_locked(run.backup)
        assert run.arenas() == [] or outcome.ended is not None  # with them nothing more is lost
        assert (left := open_files_after(60, work)) == [], f"still open: {left}"
    return outcome


def _as_process(work: Path, case: Case, injector: Injector) -> Outcome:
    assert case.kind.process is not None
    job = Job(case.workload, case.policy, work, case.kind.process)
    strikes = 0
    while (outcome := job.run(injector.faults)) is None:
        assert case.kind.process.restarts, f"the driver died with an executor: {job.log()}"
        assert len(injector.struck()) > strikes, f"it died, but not by our hand: {job.log()}"
        strikes = len(injector.struck())
    struck = {fault.point for fault in injector.faults if Path(fault.marker).exists()}
    assert struck >= case.must_strike()
    assert job.left_behind() == []
    return outcome


def _compare(case: Case, tables: list[Any], struck: Outcome) -> None:
    workload, kind = WORKLOADS[case.workload], case.kind
    if kind.loses:
        assert struck.events["recovery"] >= 1
    if case.policy in REPLAYS:
        assert struck.events["rewound"] == 0
    if case.policy != "approximate" or not kind.loses:
        # Every row is there, once.
        workload.check(tables, struck.output)
        assert case.policy == "no-tolerance" or (struck.spent, struck.losses) == (0, 0)
    else:
        assert struck.extra == 0 or kind.widens
        if math.isfinite(struck.spent):  # else nothing is promised
            assert struck.spent <= workload.theta + struck.extra
        # Every epoch's output is there.
        assert {row["epoch"] for row in struck.output} == set(range(len(tables)))
    outside = _judged(case, tables, struck)
    assert not outside, "; ".join(map(str, outside))


def _judged(case: Case, tables: list[Any], struck: Outcome) -> list[Outside]:
    """What an independent judge has against the answers after each epoch, and the newest state."""
    workload, kind = WORKLOADS[case.workload], case.kind
    given = workload.given(struck.output, len(tables))
    told = [
        Told(epoch=one["epoch"], answer=given[one["epoch"]], **{n: one[n] for n in BOUNDS})
        for one in struck.told
    ]
    assert {one.epoch for one in told} >= {0, len(tables) - 1}
    if workload.table is not None:
        told.append(dataclasses.replace(told[-1], answer=workload.held(struck.table)))
    # Only what a fault takes away may be missing.
    failures = [Failure(epoch=0, what=case.fault, unforeseen=kind.widens)] if kind.loses else []
    verdict = judge(
        tables, workload.right, failures, told, {"": workload.measure}, rounding=workload.rounding
    )
    return verdict.outside
