"""Online logistic regression: Tether's feedback loop, what a Spark user would write, one process.

Spark has no streaming regression for DataFrames, so its contenders are written by hand, with the same
gradient descent: they differ in where the model lives, and in what makes it durable.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from bench.contenders.contender import Contender
from bench.contenders.epoch_answers import on_store, spark_answers, tether_answers
from bench.contenders.spark_stores import ROCKSDB, measured_times
from bench.questions.regression import LABEL, one_batch
from bench.streams import run_through
from tether.algorithms.logistic_model import LogisticModel
from tether.algorithms.logistic_regression import GlobalModel, LocalModel, model_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from bench.contenders.course import Course
    from bench.harness import Measurement
    from bench.questions.regression import Regression
    from tether.algorithms.features import DenseFeatures

LEARNED = "weights binary, steps long, rows long"


def _features(course: Course) -> DenseFeatures:
    question: Any = course.question
    asked: Regression = question
    return asked.features


def operators(course: Course) -> Measurement:
    """Local models, averaged by a global one that is fed back; Θ is the paper's 0.01 a feature."""
    features, slots = _features(course), course.scenario.slots

    def graph(stream: Any) -> Any:
        local = stream.apply(LocalModel(features, LABEL), parallelism=slots)
        return local.apply(GlobalModel(features), parallelism=1, feedback_to=local)

    done = tether_answers(course, graph, 0.01 * features.size**0.5)
    return course.measurement(done.times, model_of(features, done.last[-1]), done.detail)


def averaged(features: DenseFeatures, rows: list[Any]) -> LogisticModel:
    """One model of several, each weighted with the rows that it has learned from."""
    weights = np.stack([np.frombuffer(row["weights"]) for row in rows])
    counts = np.array([row["rows"] for row in rows], float)
    return LogisticModel(features, counts @ weights / counts.sum(), steps=rows[0]["steps"])


def foreach_batch(course: Course) -> Measurement:
    """The model on the driver: partitions learn from where it is; their mean is written to a file."""
    features = _features(course)
    model = LogisticModel(features)

    def epoch(rows: DataFrame, number: int) -> None:
        nonlocal model
        model = averaged(features, rows.mapInArrow(learner(model), LEARNED).collect())
        np.savez(models / f"{number:05}.npz", weights=model.weights, steps=model.steps)

    with course.durable() as directory:
        models = Path(directory.removeprefix("slow://")) / "models"
        models.mkdir()
        query = run_through(course.stream().writeStream.foreachBatch(epoch), directory)
        detail = {"durable_bytes": sum(path.stat().st_size for path in models.iterdir())}
    return course.measurement(measured_times(course, query), model, detail)


def learner(model: LogisticModel) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that learns from its partition, beginning with a model."""

    def learn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in batches:
            model.partial_fit(batch, LABEL)
            rows += batch.num_rows
        learned = {"weights": [model.weights.tobytes()], "steps": [model.steps], "rows": [rows]}
        if rows:
            yield pa.RecordBatch.from_pydict(learned)

    return learn


class KeptModel:
    """A model in the state of ``applyInPandasWithState``, one for each slot."""

    def __init__(self, features: DenseFeatures) -> None:
        self._features = features

    def __call__(
        self, key: tuple[Any], batches: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        """Learn from an epoch's rows of one slot."""
        del key
        weights, steps, rows = state.get if state.exists else (None, 0, 0)
        known = None if weights is None else np.frombuffer(weights)
        model = LogisticModel(self._features, known, steps=steps)
        for batch in batches:
            model.partial_fit(pa.RecordBatch.from_pandas(batch, preserve_index=False), LABEL)
            rows += len(batch)
        learned = (model.weights.tobytes(), model.steps, rows)
        state.update(learned)
        yield pd.DataFrame([learned], columns=["weights", "steps", "rows"])


def pandas_state(course: Course) -> Measurement:
    """A model for each slot in Spark's RocksDB store, averaged on the driver but never fed back."""
    features, slots = _features(course), course.scenario.slots
    with on_store(course, ROCKSDB):
        rows = course.stream().withColumn("slot", F.pmod(F.hash("x0"), F.lit(slots)))
        learned = rows.groupBy("slot").applyInPandasWithState(
            KeptModel(features), LEARNED, LEARNED, "update", GroupStateTimeout.NoTimeout
        )
        done = spark_answers(course, learned, lambda models: models, mode="update")
    return course.measurement(done.times, averaged(features, done.last), done.detail)


def numpy_epochs(course: Course) -> Measurement:
    """File after file, one model in memory."""
    model, times = LogisticModel(_features(course)), []
    for path in course.written().files:
        begin = time.perf_counter()
        model.partial_fit(one_batch(pq.read_table(path)), LABEL)
        times.append(1_000 * (time.perf_counter() - begin))
    return course.measurement(times[course.scenario.uncounted :], model)


REGRESSION: dict[str, Contender] = {
    "tether-operators": Contender("Tether operators", "tether", operators),
    "spark-foreach-batch": Contender(
        "Spark foreachBatch, model on the driver", "spark", foreach_batch
    ),
    "spark-pandas-state": Contender("Spark applyInPandasWithState, RocksDB", "spark", pandas_state),
    "numpy": Contender("numpy + Arrow, one process", "limit", numpy_epochs),
}
