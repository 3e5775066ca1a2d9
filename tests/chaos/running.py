"""Running one cell of the matrix, and comparing it with its clean twin."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.matrix import EXACT, FAULTS, POLICIES, Case
from tests.chaos.workloads import EPOCHS, WORKLOADS, Workload
from tests.refusals import or_skip

import tether
from tether.core.errors import TetherError
from tether.spark.epoch_sink import EpochSink
from tether.testing.bundle import explained_run
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.injector import Injector
from tether.testing.leftovers import is_locked

RESTARTS = 6
"""More than any cell needs: whoever stops more often does not get on."""


@dataclass
class Outcome:
    """How a run ended."""

    table: list[dict[str, Any]]
    output: list[dict[str, Any]]
    """Rows of all epochs, each with its epoch."""
    bound: Any = None
    stops: list[TetherError] = field(default_factory=list)
    ended: TetherError | None = None


class Hooked(EpochSink):
    """Keeps every epoch's output, and strikes from the driver."""

    def __init__(self, path: Path, run: Run, hook: Any) -> None:
        super().__init__(str(path), "parquet", {})
        self._run, self._hook = run, hook

    def __call__(self, rows: Any, epoch: int) -> None:
        if self._hook is not None:
            self._hook(epoch, self._run)
        super().__call__(rows, epoch)


@dataclass
class Run:
    """A workload under a policy, on directories of its own."""

    spark: Any
    work: Path
    workload: Workload
    policy: Any
    injector: Injector
    hook: Any = None
    disk: Any = None
    stories: list[Any] = field(default_factory=list)

    @property
    def backup(self) -> Path:
        return self.work / "backup" if self.disk is None else self.disk.path / "backup"

    def arenas(self) -> list[Path]:
        root = self.work / "arena" / f"tether-{os.geteuid()}"
        return [path for path in root.glob("*") if path.is_dir()]

    def start(self) -> Any:
        rows = tether.stream(read_epochs(self.spark, self.work / "in", self.workload.schema))
        return self.workload.build(rows).start(
            Hooked(self.work / "out", self, self.hook),
            tolerance=self.policy,
            backup=str(self.backup),
            checkpoint=str(self.work / "checkpoint"),
            arena_dir=str(self.work / "arena"),
            faults=self.injector.faults,
        )

    def go(
        self, stops: tuple[type[TetherError], ...], ends: tuple[type[TetherError], ...]
    ) -> Outcome:
        """Run to the end, starting again after errors that are promised."""
        write_epochs(self.work / "in", self.workload.tables())
        outcome = Outcome([], [])
        for _ in range(RESTARTS):
            query = self.start()
            try:
                query.processAllAvailable()
                outcome.bound = query.bound()
                if self.workload.table is not None:
                    rows = query.table(*self.workload.table).collect()
                    outcome.table = [row.asDict() for row in rows]
                query.stop()
                assert query.exception() is None
                break
            except TetherError as error:
                query.stop()
                if not isinstance(error, stops):
                    raise
                outcome.stops.append(error)
                if self.disk is not None:
                    self.disk.free()  # as the error says
                if isinstance(error, ends):
                    outcome.ended = error
                    break
            finally:
                self.stories += query.story()
        else:
            assert outcome.ended is not None, f"it did not get on: {outcome.stops}"
        written = self.spark.read.parquet(str(self.work / "out"))
        outcome.output = [row.asDict() for row in written.collect()]
        return outcome


_twins: dict[str, Outcome] = {}


def twin(spark: Any, name: str, work: Path) -> Outcome:
    """The same workload without failures: one answer for all policies."""
    if name not in _twins:
        run = Run(spark, work, WORKLOADS[name], tether.MiniBatch(), Injector(work / "none"))
        _twins[name] = run.go((), ())
        assert _twins[name].bound.spent == 0
    return _twins[name]


def check(spark: Any, work: Path, case: Case) -> list[Any]:
    """Run a cell and hold it against its twin and its policy's promise; what struck."""
    workload, kind = WORKLOADS[case.workload], FAULTS[case.fault]
    clean = twin(spark, case.workload, work / "twin")
    injector = Injector(work / "strikes", seed=case.seed)
    hook = kind.plan(injector, workload, case.point)
    policy = POLICIES[case.policy](workload.theta)
    with ExitStack() as stack:
        disk = None
        if kind.small_disk:
            disk = stack.enter_context(or_skip(injector.full_disk(4 << 20)))
        run = Run(spark, work, workload, policy, injector, hook, disk)
        stack.enter_context(explained_run(work, injector=injector, stories=run.stories))
        ends = kind.ends if case.policy in EXACT else ()
        outcome = run.go(kind.stops, ends)
        assert injector.struck(), "nothing was struck: this cell shows nothing"
        if outcome.ended is None:
            _compare(case, workload, clean, outcome)
        _nothing_left(run)
    return injector.struck()


def _compare(case: Case, workload: Workload, clean: Outcome, struck: Outcome) -> None:
    kind = FAULTS[case.fault]
    keys = workload.key
    if case.policy != "approximate" or not kind.loses:
        assert _bag(struck.table) == _bag(clean.table)
        assert _bag(struck.output) == _bag(clean.output)
        assert case.policy == "no-tolerance" or struck.bound.spent == 0
        return
    spent, extra = struck.bound.spent, struck.bound.extra
    assert extra == 0 or kind.widens
    assert spent <= workload.theta + extra
    # Every epoch's output is there, once: nothing was lost or applied twice.
    assert {row["epoch"] for row in struck.output} <= set(range(EPOCHS))
    assert {row["epoch"] for row in struck.output} >= {row["epoch"] for row in clean.output}
    if workload.norm is not None:
        there = Counter((row["epoch"], *(row[k] for k in keys)) for row in struck.output)
        assert there == Counter((row["epoch"], *(row[k] for k in keys)) for row in clean.output)
        assert _distance(struck.table, clean.table, keys, workload.norm) <= spent


def _bag(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(repr(sorted(row.items())) for row in rows)


def _distance(
    one: list[dict[str, Any]], other: list[dict[str, Any]], keys: tuple[str, ...], norm: str
) -> float:
    sides = [
        {
            (tuple(row[k] for k in keys), name): value
            for row in rows
            for name, value in row.items()
            if name not in keys
        }
        for rows in (one, other)
    ]
    off = [
        abs(sides[0].get(at, 0) - sides[1].get(at, 0)) for at in sides[0].keys() | sides[1].keys()
    ]
    return sum(off) if norm == "l1" else max(off, default=0)


def _nothing_left(run: Run) -> None:
    """A query that was stopped has let go of everything, in this process too."""
    assert not is_locked(run.backup)
    held = [fd.readlink() for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    assert [path for path in held if path.is_relative_to(run.work)] == []
