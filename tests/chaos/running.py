"""Running a workload of the matrix, struck or not, to its end."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.chaos.workloads import Workload, written

import tether
from tether.core.errors import TetherError
from tether.spark.epoch_sink import EpochSink
from tether.testing.epochs import read_epochs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tether.chaos.faults import Fault

EPOCHS = 7
BOUNDS = ("spent", "worst_now", "ceiling", "items_lost")
RESTARTS = 6
"""More than any cell needs: a cell that stops more often makes no progress."""


@dataclass
class Outcome:
    """How a run ended."""

    spent: float = 0.0
    extra: float = 0.0
    losses: int = 0
    table: list[dict[str, Any]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)
    """What ``bound()`` said after each epoch, in the order in which they ended."""
    output: list[dict[str, Any]] = field(default_factory=list)
    """Rows of all epochs, each with its epoch."""
    events: Counter[str] = field(default_factory=Counter)
    """Of the story, by what happened."""
    stops: list[TetherError] = field(default_factory=list)
    ended: TetherError | None = None


class Hooked(EpochSink):
    """Keeps every epoch's output, and strikes from the driver."""

    def __init__(self, path: Path, run: Run, hook: Any) -> None:
        super().__init__(str(path), "parquet", {})
        self._run, self._hook = run, hook

    def __call__(self, rows: Any, epoch: int) -> None:
        self._run.note(epoch - 1)  # that one is over
        if self._hook is not None:
            self._hook(epoch, self._run)
        super().__call__(rows, epoch)


@dataclass
class Run:
    """A workload under a policy, on directories of its own; its input is in ``in``."""

    spark: Any
    work: Path
    workload: Workload
    policy: Any
    faults: Sequence[Fault] = ()
    hook: Any = None
    disk: Any = None
    arena_scope: str = "executor"
    stories: list[Any] = field(default_factory=list)
    query: Any = None

    @property
    def backup(self) -> Path:
        return self.work / "backup" if self.disk is None else self.disk.path / "backup"

    def arenas(self) -> list[Path]:
        root = self.work / "arena" / f"tether-{os.geteuid()}"
        return [path for path in root.glob("*") if path.is_dir()]

    def note(self, epoch: int) -> None:
        """Keep what is told after an epoch, where it outlives this process."""
        if epoch < 0 or self.query is None:
            return
        bound = self.query.bound()
        told = {name: getattr(bound, name) for name in BOUNDS}
        with (self.work / "told").open("a") as file:
            file.write(json.dumps({"epoch": epoch, **told}) + "\n")

    def start(self) -> Any:
        rows = tether.stream(read_epochs(self.spark, self.work / "in", self.workload.schema))
        return self.workload.build(rows).start(
            Hooked(self.work / "out", self, self.hook),
            tolerance=self.policy,
            backup=str(self.backup),
            checkpoint=str(self.work / "checkpoint"),
            arena_dir=str(self.work / "arena"),
            arena_scope=self.arena_scope,
            faults=list(self.faults),
        )

    def go(
        self,
        stops: tuple[type[TetherError], ...] = (),
        ends: tuple[type[TetherError], ...] = (),
    ) -> Outcome:
        """Run to the end, starting again after errors that are promised."""
        outcome = Outcome()
        for _ in range(RESTARTS):
            self.query = None
            query = self.query = self.start()
            try:
                query.processAllAvailable()
                self.note(query.lastProgress["batchId"])
                bound = query.bound()
                outcome.spent, outcome.extra = bound.spent, bound.extra
                outcome.losses = query.totals()["losses"]
                if self.workload.table is not None:
                    rows = query.table(*self.workload.table[:2]).collect()
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
            raise AssertionError(f"it did not get on: {outcome.stops}")
        outcome.events.update(event.what for event in self.stories)
        outcome.output = written(self.work / "out")
        outcome.told = told(self.work)
        return outcome


def told(work: Path) -> list[dict[str, Any]]:
    """What was noted of all epochs."""
    return [json.loads(line) for line in (work / "told").read_text().splitlines()]
