"""What a contender gets: the scenario, the files, the right answer, and a Spark session."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from bench.harness import Measurement
from bench.inputs import write_csv
from bench.questions import question_of
from bench.streams import scratch
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from bench.questions.question import Question
    from bench.scenario import Scenario


@dataclass(frozen=True)
class Course:
    """One scenario with its files: what all contenders run over.

    Args:
        scenario: The scenario.
        folder: Scratch directory for its files.
        open_spark: Opens the session that all Spark contenders share.
    """

    scenario: Scenario
    folder: Path
    open_spark: Callable[[], SparkSession]

    @property
    def source(self) -> Path:
        """The Parquet files, one an epoch."""
        return self.folder / "in"

    @cached_property
    def question(self) -> Question:
        """What is asked."""
        return question_of(self.scenario)

    @cached_property
    def truth(self) -> Any:
        """The right answer; the files are written when it is first asked for."""
        write_epochs(self.source, self.question.tables())
        return self.question.truth(self.files)

    @property
    def files(self) -> list[Path]:
        """The Parquet files in the order of the epochs."""
        return sorted(self.source.glob("*.parquet"))

    def written(self) -> Course:
        """This course, its files written."""
        _ = self.truth
        return self

    @cached_property
    def csv(self) -> Path:
        """The same rows as CSV."""
        write_csv(self.written().source, self.folder / "csv")
        return self.folder / "csv"

    @cached_property
    def small(self) -> Course:
        """A smaller one for contenders that make a Python call for each row or key.

        It has that part of the rows and of the keys, and few epochs; what is compared is time per row.
        """
        share = self.scenario.python_share
        changed = {
            name: max(1, round(share * getattr(self.scenario, name))) for name in ("rows", "keys")
        }
        changed["touched"] = round(share * self.scenario.touched)
        scenario = msgspec.structs.replace(
            self.scenario, **changed, epochs=min(3, self.scenario.epochs), warm_up=1
        )
        return replace(self, scenario=scenario, folder=self.folder / "small")

    @property
    def total_rows(self) -> int:
        """Rows in all files; loading brings every key once."""
        loaded = self.scenario.keys if self.scenario.loading else 0
        return loaded + self.scenario.rows * (self.scenario.warm_up + self.scenario.epochs)

    @property
    def spark(self) -> SparkSession:
        """The session, with this scenario's number of partitions."""
        session = self.open_spark()
        session.conf.set("spark.sql.shuffle.partitions", str(self.scenario.slots))
        return session

    def stream(self) -> DataFrame:
        """The files as a Spark stream, one file an epoch."""
        return read_epochs(self.spark, self.written().source, self.question.schema)

    @contextmanager
    def durable(self) -> Iterator[str]:
        """A directory for checkpoints and backups, behind the slow store where the scenario says so."""
        with scratch() as directory:
            yield f"slow://{directory}" if self.scenario.store_latency else str(directory)

    @contextmanager
    def settings(self, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        """Settings of the session for one run."""
        session = self.spark
        before = {name: session.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            session.conf.set(name, value)
        try:
            yield session
        finally:
            for name, value in before.items():
                session.conf.unset(name) if value is None else session.conf.set(name, value)

    def measurement(
        self, times: list[float], answer: Any, detail: dict[str, Any] | None = None
    ) -> Measurement:
        """Times of the measured epochs, with the answer checked."""
        found = {"answer": self.question.shown(answer), **(detail or {})}
        if "durable_bytes" in found:
            found["durable_bytes_per_row"] = round(found["durable_bytes"] / self.total_rows, 3)
        right = self.question.is_right(answer, self.truth)
        return Measurement(times, right, found, rows=self.scenario.rows)
