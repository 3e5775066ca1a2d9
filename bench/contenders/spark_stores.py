"""Plain Spark SQL on a state store: Spark's own ones, ours, and no state at all as the limit."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from bench.contenders.durable import durable_bytes, request_count
from bench.inputs import Digest, columns_of, digest_sql
from bench.streams import epoch_times, run_through
from tether.algorithms.word_count import words
from tether.sql import bounded, overlapped_checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from bench.contenders.course import Course
    from bench.harness import Measurement
    from bench.scenario import Scenario

STORE = "spark.sql.streaming.stateStore"
_CLASSES = "org.apache.spark.sql.execution.streaming.state"
DEFAULT = {f"{STORE}.providerClass": f"{_CLASSES}.HDFSBackedStateStoreProvider"}
ROCKSDB = {
    f"{STORE}.providerClass": f"{_CLASSES}.RocksDBStateStoreProvider",
    f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
ROCKSDB_V2 = {**ROCKSDB, f"{STORE}.checkpointFormatVersion": "2"}


def totals(scenario: Scenario, rows: DataFrame) -> DataFrame:
    """The query of a scenario: totals by ``k``."""
    if scenario.algorithm == "word-count":
        return words(rows).withColumnRenamed("word", "k").groupBy("k").agg(F.count("*").alias("n"))
    return rows.groupBy("k").agg(*(F.sum(name).alias(name) for name in columns_of(scenario)))


def outputs(scenario: Scenario) -> list[str]:
    """Names of the totals' columns."""
    return ["n"] if scenario.algorithm == "word-count" else columns_of(scenario)


def spark_digest(scenario: Scenario, answer: DataFrame) -> Digest:
    """The digest of an answer with columns ``k`` and the outputs."""
    row = answer.selectExpr(*digest_sql(scenario, "k", outputs(scenario))).collect()[0]
    return Digest(*(int(value or 0) for value in row))


def no_state(course: Course) -> Measurement:
    """Spark folds each epoch by itself and keeps nothing: the limit for anything on Spark.

    Its answer is checked as far as it has one: the sums of the epochs add up to the truth's.
    """
    scenario = course.scenario
    sums: list[int] = []

    def epoch(rows: DataFrame, number: int) -> None:
        del number
        rows.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        seen = Observation()
        whole = F.sum(F.expr(" + ".join(outputs(scenario)))).alias("whole")
        totals(scenario, rows).observe(seen, whole).write.format("noop").mode("append").save()
        sums.append(int(seen.get["whole"] or 0))

    before = request_count(course)
    with course.durable() as directory:
        writer = course.stream().writeStream.foreachBatch(epoch)
        query = run_through(writer, directory)
    requests = (request_count(course) - before) / scenario.total_epochs
    right = (sum(sums), len(sums)) == (course.truth.total, scenario.total_epochs)
    answer = course.truth if right else Digest(0, sum(sums), 0)
    return course.measurement(
        measured_times(course, query), answer, {"requests_per_epoch": round(requests, 1)}
    )


def store(course: Course, settings: dict[str, str], *, overlapped: bool = False) -> Measurement:
    """A stateful query on one of Spark's stores; ``overlapped``: with our checkpoint files."""
    with course.settings(settings) as session, _checkpoints(session, overlapped=overlapped):
        return stateful(course, session, totals(course.scenario, course.stream()), _stored(course))


def bounded_store(course: Course, *, changed_rows: float) -> Measurement:
    """The same query with one more setting: Tether's bounded state store.

    A checkpoint that is far away has our checkpoint files too, as it has by itself under our operators.
    """
    session, far = course.spark, course.scenario.store_latency > 0
    with bounded(session, max_state_error=changed_rows), _checkpoints(session, overlapped=far):
        query = totals(course.scenario, course.stream())
        return stateful(course, session, query, _stored(course))


def _checkpoints(session: SparkSession, *, overlapped: bool) -> AbstractContextManager[object]:
    return overlapped_checkpoints(session) if overlapped else nullcontext()


def _stored(course: Course) -> Callable[[DataFrame], DataFrame]:
    names = outputs(course.scenario)
    kind = f"struct<{','.join(f'{name}:bigint' for name in names)}>"

    def stored(state: DataFrame) -> DataFrame:
        # Spark calls the buffers of all sums alike; a cast renames them by their places.
        renamed = F.col("value").cast(kind).alias("value")
        return state.select("key.k", renamed).select("k", *(f"value.{name}" for name in names))

    return stored


def stateful(
    course: Course,
    session: SparkSession,
    query: DataFrame,
    stored: Callable[[DataFrame], DataFrame],
    options: dict[str, str] | None = None,
) -> Measurement:
    """Run a stateful query to its end; the answer is what its store holds then."""
    with course.durable() as directory:
        before = request_count(course)
        running = run_through(query.writeStream.outputMode("update").format("noop"), directory)
        # Before the stores are closed, for ours makes everything durable then.
        detail = {
            "durable_bytes": durable_bytes(directory, "state"),
            "requests_per_epoch": round(
                (request_count(course) - before) / course.scenario.total_epochs, 1
            ),
        }
        close_stores(session)
        reader = session.read.format("statestore").options(**(options or {}))
        answer = spark_digest(course.scenario, stored(reader.load(directory)))
    return course.measurement(measured_times(course, running), answer, detail)


def measured_times(course: Course, query: StreamingQuery) -> list[float]:
    progress = [one for one in query.recentProgress if one["numInputRows"]]
    return epoch_times(progress, course.scenario.uncounted)


def close_stores(session: SparkSession) -> None:
    """Unload all state stores: what they hold is durable then, and can be read."""
    stores: Any = session.sparkContext._jvm.org.apache.spark.sql.execution.streaming.state
    stores.StateStore.stop()
