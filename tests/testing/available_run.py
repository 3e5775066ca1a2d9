"""A count over three inputs that may fall silent, on the stand-in for Spark."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.types import LongType, StructType
from tests.sources.samples import Written

import tether
from tether.sources.sunion.offsets import end_of
from tether.sources.sunion.subscribe import specify
from tether.testing.fuzz.meaning import home
from tether.testing.injector import Injector
from tether.testing.inprocess import LocalSession
from tether.testing.inprocess.subscribed import SubscribedSource

if TYPE_CHECKING:
    from pathlib import Path


BUCKET, INPUTS = 10, 3


def values(at: int, number: int) -> list[int]:
    """Values of a bucket of an input."""
    return [(5 * at + number + i * i) % 7 for i in range(number, BUCKET, 2)]


class Count(tether.Operator):
    """Counts values, and tells those that changed."""

    output = StructType().add("v", LongType()).add("n", LongType())

    def setup(self, state: Any) -> None:
        self.seen = state.table("seen", {"v": pa.int64()}, {"n": "int64"})

    def process(self, batch: Any, out: Any) -> None:
        self.seen.add(batch.select(["v"]), n=1)

    def on_epoch_end(self, out: Any) -> None:
        out.emit(self.seen.rows_to_batch(self.seen.changed()))


class Job:
    """A count over three inputs, restartable; its sink keeps what it was given in a file."""

    def __init__(self, work: Path, policy: tether.Available, executors: int = 0) -> None:
        work.mkdir(exist_ok=True)
        self.work, self.policy, self.executors = work, policy, executors
        self.injector = Injector(work / "strikes")
        self.inputs = [Written(str(work / f"x{n}")) for n in range(INPUTS)]
        self.sent = [0] * INPUTS
        self.now = 0.0
        self._checkpoint = str(work / "checkpoint")

    # ---- its sink: one that, as an exchange, takes both kinds ----------------------------------------

    def follow_subscription(self, checkpoint: str) -> None:
        assert checkpoint == self._checkpoint

    def __call__(self, rows: Any, epoch: int) -> None:
        told = end_of(self._checkpoint, epoch)
        got = sorted([row["v"], row["n"]] for row in rows.collect())
        line = json.dumps([epoch, told.kind, told.first, told.end, got])
        with (self.work / "given").open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def given(self) -> dict[int, list[Any]]:
        """What was given last for each epoch."""
        if not (self.work / "given").exists():
            return {}
        lines = (self.work / "given").read_text().splitlines()
        return {line[0]: line[1:] for line in map(json.loads, lines)}

    def stable(self) -> list[Any]:
        return [rows for kind, _, _, rows in self._in_order() if kind == "stable" and rows]

    def tentative(self) -> list[Any]:
        return [rows for kind, _, _, rows in self._in_order() if kind == "tentative" and rows]

    def _in_order(self) -> list[Any]:
        return [each for _, each in sorted(self.given().items())]

    # ---- inputs ------------------------------------------------------------------------------------

    def send(self, number: int) -> None:
        """One bucket of an input."""
        at = self.sent[number]
        self.sent[number] += 1
        first = at * BUCKET
        written = self.inputs[number]
        written.now = self.now
        rows = list(zip(range(first + number, first + BUCKET, 2), values(at, number), strict=True))
        written.add(at, rows, boundary=first + BUCKET)

    # ---- the query ---------------------------------------------------------------------------------

    def start(self) -> Any:
        self.session = LocalSession(
            home, batch_rows=4, executors=self.executors, faults=self.injector.faults
        )
        spec = specify(
            [str(self.work / f"x{n}") for n in range(INPUTS)],
            reader="r",
            bucket=BUCKET,
            handling=msgspec.structs.replace(self.policy.handling, most=1),
            operators=True,
        )
        self.source = SubscribedSource(self.session, spec)
        self.query = (
            tether.stream(self.source, replays=True)
            .apply(Count(), key="v", parallelism=2)
            .start(
                self,
                tolerance=self.policy,
                backup=str(self.work / "backup"),
                checkpoint=self._checkpoint,
                arena_dir=str(self.work / "arenas"),
                arena_scope="executor" if self.executors else "node",
                faults=self.injector.faults,
            )
        )
        return self.query

    def step(self, seconds: float) -> None:
        """Time passes; whatever can be given is."""
        self.now += seconds
        self.source.now = self.now
        self.query.processAllAvailable()
