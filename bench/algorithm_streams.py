"""The algorithms on Spark through the public API, for their throughput: items a second."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

import tether
from bench.harness import Measurement
from bench.streams import epoch_times, scratch
from tether.algorithms.features import DenseFeatures
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch
from tether.algorithms.logistic_regression import GlobalModel, LocalModel, model_of
from tether.algorithms.online_join import JoinEstimate, JoinSample, RippleJoin
from tether.data import dense_examples, packets
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tether.spark.query import Query

SLOTS = 2
WARM_UP = 2
FEATURES = [f"x{number}" for number in range(28)]


class Finished(NamedTuple):
    """A run that is over."""

    times: list[float]
    """Milliseconds of each epoch after the warm-up."""
    answers: dict[int, list[dict[str, Any]]]
    """Rows that each epoch gave."""
    right: bool
    query: Query


@dataclass(frozen=True)
class Workload:
    """An algorithm's query over a stream of known epochs."""

    name: str
    tables: list[pa.Table]
    schema: str
    query: Callable[[Any], Any]
    check: Callable[[list[dict[str, Any]]], bool]
    """Whether the last epoch's rows are a right answer."""
    budgets: tuple[float, float]

    @property
    def rows(self) -> int:
        """Rows in an epoch."""
        return int(self.tables[0].num_rows)

    def write(self, directory: Path) -> None:
        """Put the epochs where Spark reads them: the page cache holds them from then on."""
        write_epochs(directory, self.tables)

    def measure(
        self,
        session: SparkSession,
        source: Path,
        policy: Any,
        *,
        keep_answers: bool = False,
        **options: Any,
    ) -> Measurement:
        """Run all epochs under a policy; check the last answer."""
        finished = self.run(session, source, policy, **options)
        answers, times, slots = finished.answers, finished.times, finished.query.slots()
        rate = self.rows / (np.median(times) / 1_000)
        detail: dict[str, Any] = {
            "items_per_second": round(float(rate)),
            "rows_per_epoch": self.rows,
        }
        # Where the last epoch's time went: what is not in a slot is Spark's reading and shuffling.
        detail["slot_seconds"] = {
            f"{slot['operator']} {slot['slot']}": {
                phase: round(seconds, 4) for phase, seconds in slot["seconds"].items()
            }
            for slot in slots
        }
        if keep_answers:
            detail["answers"] = [row for epoch in sorted(answers) for row in answers[epoch]]
        return Measurement(times, finished.right, detail)

    def run(self, session: SparkSession, source: Path, policy: Any, **options: Any) -> Finished:
        """Run all epochs under a policy to their end."""
        with scratch() as directory:
            options = {"trigger": {"availableNow": True}, **options}
            query, answers = self._start(session, source, directory, policy, **options)
            query.awaitTermination()
        return self._finished(query, answers)

    def side_by_side(
        self, session: SparkSession, policies: dict[str, Any], *, warm_up: int = WARM_UP
    ) -> dict[str, Finished]:
        """Run a query for each policy, all of them given one epoch after the other in turn.

        So whatever the machine does at a time, it does to all of them.
        """
        # By default Spark forgets all but the newest hundred reports, and with them epochs' times.
        session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
        # A query that waits for its turn looks for files all the time: let it do so seldom.
        session.conf.set("spark.sql.streaming.pollingDelay", "100ms")
        with ExitStack() as stack:
            places = {name: stack.enter_context(scratch()) for name in policies}
            running = {}
            for name, policy in policies.items():
                (places[name] / "in").mkdir()
                running[name] = self._start(session, places[name] / "in", places[name], policy)
            names = list(policies)
            for number, table in enumerate(self.tables):
                first = number % len(names)
                for name in names[first:] + names[:first]:
                    write_epochs(places[name] / "in", [table], first=number)
                    running[name][0].processAllAvailable()
            for query, _ in running.values():
                query.stop()
        session.conf.unset("spark.sql.streaming.pollingDelay")
        session.conf.unset("spark.sql.streaming.numRecentProgressUpdates")
        return {name: self._finished(*each, warm_up) for name, each in running.items()}

    def _start(
        self, session: SparkSession, source: Path, directory: Path, policy: Any, **options: Any
    ) -> tuple[Query, dict[int, list[dict[str, Any]]]]:
        answers: dict[int, list[dict[str, Any]]] = {}

        def sink(rows: Any, epoch: int) -> None:
            # Every epoch's rows are asked for, so that every epoch does all its work.
            answers[epoch] = [row.asDict() for row in rows.collect()]

        query = self.query(tether.stream(read_epochs(session, source, self.schema))).start(
            sink,
            tolerance=policy,
            backup=str(directory / "backup"),
            checkpoint=str(directory / "checkpoint"),
            **options,
        )
        return query, answers

    def _finished(
        self, query: Query, answers: dict[int, list[dict[str, Any]]], warm_up: int = WARM_UP
    ) -> Finished:
        progress = [report for report in query.recentProgress if report["numInputRows"]]
        right = self.check(answers[len(self.tables) - 1])
        return Finished(epoch_times(progress, warm_up), answers, right, query)


def heavy_hitters(rows: int, epochs: int, seed: int) -> Workload:
    tables = [
        table.select(["src", "dst", "bytes"])
        for table in packets(epochs, rows, flows=200_000, skew=1.1, seed=seed)
    ]
    every = pa.concat_tables(tables)
    threshold = float(every["bytes"].to_numpy().sum()) / 4_000
    sums = every.group_by(["src", "dst"]).aggregate([("bytes", "sum")])
    heavy = sums.filter(pa.compute.greater_equal(sums["bytes_sum"], threshold))
    true = set(zip(heavy["src"].to_pylist(), heavy["dst"].to_pylist(), strict=True))

    def query(stream: Any) -> Any:
        local = LocalSketch(["src", "dst"], value="bytes", threshold=threshold)
        sketches = stream.apply(local, key=["src", "dst"], parallelism=SLOTS)
        return sketches.apply(GlobalSketch(threshold=threshold), parallelism=1)

    def check(answer: list[dict[str, Any]]) -> bool:
        return true <= {(row["src"], row["dst"]) for row in answer}

    return Workload(
        "heavy hitters",
        tables,
        "src long, dst long, bytes long",
        query,
        check,
        (threshold / 100, threshold / 1_000),
    )


def logistic_regression(rows: int, epochs: int, seed: int) -> Workload:
    *tables, test = dense_examples(epochs + 1, rows, noise=0.3, seed=seed)
    features = DenseFeatures(FEATURES)
    batch = test.slice(0, 50_000).combine_chunks().to_batches()[0]

    def query(stream: Any) -> Any:
        local = stream.apply(LocalModel(features), parallelism=SLOTS)
        return local.apply(GlobalModel(features), parallelism=1, feedback_to=local)

    def check(answer: list[dict[str, Any]]) -> bool:
        return model_of(features, answer[-1]).score(batch, "label") > 0.85

    per_feature = features.size**0.5
    schema = ", ".join(f"{name} double" for name in FEATURES) + ", label int"
    budgets = (0.01 * per_feature, 0.001 * per_feature)
    return Workload("logistic regression", tables, schema, query, check, budgets)


def online_join(rows: int, epochs: int, seed: int) -> Workload:
    tables = []
    for number, table in enumerate(packets(epochs, rows, flows=5_000, skew=0.6, seed=seed)):
        is_left = np.random.default_rng([seed, number, 5]).random(rows) < 0.5
        tables.append(table.append_column("is_left", pa.array(is_left)))
    every = pa.concat_tables(tables)
    _, bins = np.unique(
        every["dst"].to_numpy() * 1_000 + every["time"].to_numpy().astype(np.int64),
        return_inverse=True,
    )
    left = every["is_left"].to_numpy()
    truth = float(np.bincount(bins, weights=left) @ np.bincount(bins, weights=~left))

    def query(stream: Any) -> Any:
        sample = JoinSample(["dst"], rate=0.1, time="time", value="bytes", seed=seed)
        return (
            stream.apply(sample, parallelism=SLOTS)
            .apply(RippleJoin(rate=0.1), key=["dst", "bucket"], parallelism=SLOTS)
            .apply(JoinEstimate(rate=0.1, confidence=0.9999), parallelism=1)
        )

    def check(answer: list[dict[str, Any]]) -> bool:
        return answer[0]["count_low"] <= truth <= answer[0]["count_high"]

    sampled = 0.1 * len(every)
    schema = "time double, src long, dst long, bytes long, is_left boolean"
    budgets = (sampled / 1_000, sampled / 10_000)
    return Workload("online join", tables, schema, query, check, budgets)
