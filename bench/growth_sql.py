"""Growth of the SQL door: a plain count by key on the bounded state store, with more and more keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.harness import Measurement, say
from bench.sql_runs import close_stores, violations, with_rows
from bench.streams import epoch_times, run_through, scratch
from tether.sql import bounded
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import SparkSession

SCHEMA = "k long"


def sql_door(
    session: SparkSession,
    tables: Iterable[pa.Table],
    budget: float,
    *,
    slots: int,
    loading: int,
    keys: int,
    rows: int,
) -> Measurement:
    """Run the query over some epochs; check what its checkpoint holds afterwards.

    Args:
        session: The session.
        tables: The rows of each epoch.
        budget: Θ, in changed rows.
        slots: Partitions of the state.
        loading: Epochs at the beginning that bring the keys.
        keys: How many keys there are.
        rows: How many rows there are in all.
    """
    session.conf.set("spark.sql.shuffle.partitions", str(slots))
    with scratch() as directory:
        total = write_epochs(directory / "in", tables)
        counts = read_epochs(session, directory / "in", SCHEMA).groupBy("k").count()
        writer: Any = counts.writeStream.outputMode("update").format("noop")
        checkpoint = directory / "checkpoint"
        # By default Spark forgets all but the newest hundred reports.
        with bounded(session, max_state_error=budget):
            query = run_through(writer, str(checkpoint))
        progress = with_rows(query)
        state = progress[-1]["stateOperators"][0]
        close_stores(session)  # which makes all rows durable
        held = session.read.format("statestore").load(str(checkpoint))
        answer = held.selectExpr("count(*)", "sum(value.count)").collect()[0]
        close_stores(session)
    detail = {
        "bytes_per_key": state["memoryUsedBytes"] / state["numRowsTotal"],
        "resident_mb": round(state["memoryUsedBytes"] / 2**20),
        "loading_ms": round(sum(epoch_times(progress, 0)[:loading])),
        "bound_violations": violations(progress),
    }
    times = epoch_times(progress, loading + 2)
    say(f"  SQL door, {keys:,} keys: {sorted(times)} ms, {detail}")
    right = tuple(answer) == (keys, rows) and len(progress) == total
    return Measurement(times, right and not detail["bound_violations"], detail)
