"""A PyFlink job, run by the Python of .venv-flink: a query over CSV files, timed and checked.

Settings follow Flink's own tuning pages: mini-batches with two-phase aggregation, objects reused,
incremental checkpoints for RocksDB. Reads CSV because the package brings no Parquet format.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyflink.common import Configuration, Types
from pyflink.datastream import RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.functions import KeyedProcessFunction
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import StreamTableEnvironment


def environment(job: dict[str, Any]) -> tuple[StreamExecutionEnvironment, StreamTableEnvironment]:
    settings = {
        "parallelism.default": str(job["slots"]),
        "python.executable": sys.executable,
        "pipeline.object-reuse": "true",
        # Python in the JVM's own process: each state access of the other mode is a remote call.
        "python.execution-mode": "thread",
        "python.state.cache-size": "100000",
        "state.backend.type": job["state"],
        "execution.checkpointing.incremental": "true",
        "restart-strategy.type": "none",  # a job that fails is to say so
        "taskmanager.memory.managed.size": "1g",
        "taskmanager.numberOfTaskSlots": str(job["slots"]),
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "50000",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    }
    if job["interval"] is not None:
        settings |= {
            "execution.checkpointing.interval": f"{round(1_000 * job['interval'])} ms",
            "execution.checkpointing.storage": "filesystem",
            # A stream that ends would wait for one more checkpoint; a real one does not end.
            "execution.checkpointing.checkpoints-after-tasks-finish": "false",
            "execution.checkpointing.dir": f"file://{job['checkpoints']}",
        }
    configuration = Configuration()
    for name, value in settings.items():
        configuration.set_string(name, value)
    stream = StreamExecutionEnvironment.get_execution_environment(configuration)
    return stream, StreamTableEnvironment.create(stream)


def declare(tables: StreamTableEnvironment, job: dict[str, Any], path: str) -> None:
    tables.execute_sql(
        f"CREATE TEMPORARY TABLE input ({job['input']}) WITH ('connector' = 'filesystem', "
        f"'path' = 'file://{path}', 'format' = 'csv')"
    )
    tables.execute_sql(
        f"CREATE TEMPORARY TABLE nowhere ({job['output']}) WITH ('connector' = 'blackhole')"
    )


def timed(job: dict[str, Any], path: str, query: str) -> float:
    _, tables = environment(job)
    declare(tables, job, path)
    begin = time.perf_counter()
    tables.execute_sql(f"INSERT INTO nowhere {query}").wait()
    return time.perf_counter() - begin


def timed_table(job: dict[str, Any], path: str) -> float:
    return timed(job, path, job["query"])


def timed_reading(job: dict[str, Any], path: str) -> float:
    """Reading and parsing alone: what of the time is the CSV's."""
    return timed(job, path, job["reading"])


def table_answer(job: dict[str, Any], path: str) -> list[int]:
    _, tables = environment(job)
    declare(tables, job, path)
    last = None
    query = f"SELECT {', '.join(job['answer'])} FROM ({job['query']})"
    with tables.execute_sql(query).collect() as rows:
        for row in rows:
            last = row
    return [int(value) for value in last]


class AddUp(KeyedProcessFunction):
    """Adds rows to a key's totals, in Python, as the DataStream API's documentation does it."""

    def __init__(self, width: int) -> None:
        self._width = width

    def open(self, runtime_context: RuntimeContext) -> None:
        kind = Types.TUPLE([Types.LONG()] * self._width)
        self._totals = runtime_context.get_state(ValueStateDescriptor("totals", kind))

    def process_element(self, value: Any, ctx: Any) -> Any:
        totals = self._totals.value() or (0,) * self._width
        totals = tuple(one + other for one, other in zip(totals, value[1:], strict=True))
        self._totals.update(totals)
        yield (value[0], *totals)


def summed(job: dict[str, Any], path: str) -> tuple[StreamTableEnvironment, Any]:
    _, tables = environment(job)
    declare(tables, job, path)
    width = len(job["columns"])
    kind = Types.TUPLE([Types.LONG()] * (width + 1))
    rows = tables.to_data_stream(tables.from_path("input"))
    pairs = rows.map(lambda row: tuple(row), kind)
    return tables, pairs.key_by(lambda row: row[0], Types.LONG()).process(AddUp(width), kind)


def timed_datastream(job: dict[str, Any], path: str) -> float:
    tables, totals = summed(job, path)
    begin = time.perf_counter()
    tables.from_data_stream(totals).execute_insert("nowhere").wait()
    return time.perf_counter() - begin


def datastream_answer(job: dict[str, Any], path: str) -> list[int]:
    _, totals = summed(job, path)
    last = {}
    with totals.execute_and_collect() as rows:
        for key, *sums in rows:
            last[key] = sums  # a key's rows come in order
    mixed = [
        (k % 65537) * (sum((2 ** (i + 1) - 1) * v for i, v in enumerate(sums)) % 65537)
        for k, sums in last.items()
    ]
    return [len(last), sum(map(sum, last.values())), sum(mixed)]


TIMED = {"table": timed_table, "datastream": timed_datastream, "reading": timed_reading}


def main() -> None:
    job = json.loads(sys.argv[1])
    api, paths = job["api"], job["paths"]
    run = TIMED[api]
    run(job, paths["uncounted"])  # the JVM's own warming up
    found: dict[str, Any] = {
        "uncounted_seconds": run(job, paths["uncounted"]),
        "all_seconds": run(job, paths["all"]),
    }
    answer = datastream_answer if api == "datastream" else table_answer
    found["answer"] = answer(job, paths["all"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
