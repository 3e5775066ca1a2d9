"""A Bytewax dataflow, run by the Python of .venv-bytewax: totals by key over Parquet files."""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

ROWS_AT_ONCE = 1_000


class Files(StatefulSourcePartition):
    """Every n-th file of a folder, a thousand rows at a time."""

    def __init__(self, paths: list[Path], columns: list[str], done: int) -> None:
        self._paths, self._columns = paths, columns
        self._done = 0
        self._batches = self._read()
        for _ in range(done):
            next(self._batches)

    def _read(self) -> Any:
        for path in self._paths:
            for batch in pq.ParquetFile(path).iter_batches(ROWS_AT_ONCE):
                keys = [str(key) for key in batch["k"].to_pylist()]
                values = zip(*(batch[name].to_pylist() for name in self._columns), strict=True)
                yield list(zip(keys, values, strict=True))

    def next_batch(self) -> list[Any]:
        batch = next(self._batches)
        self._done += 1
        return batch

    def snapshot(self) -> int:
        return self._done


class Folder(FixedPartitionedSource):
    """A folder's files, dealt out among the workers."""

    def __init__(self, path: str, columns: list[str], slots: int) -> None:
        self._files = sorted(Path(path).glob("*.parquet"))
        self._columns, self._slots = columns, slots

    def list_parts(self) -> list[str]:
        return [str(number) for number in range(self._slots)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Files:
        mine = self._files[int(for_part) :: self._slots]
        return Files(mine, self._columns, resume_state or 0)


class Newest(DynamicSink):
    """Keeps the newest totals of each key."""

    def __init__(self, kept: dict[str, tuple[int, ...]]) -> None:
        self._kept = kept

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
        kept = self._kept

        class Keeping(StatelessSinkPartition):
            def write_batch(self, items: list[Any]) -> None:
                kept.update(items)

        return Keeping()


def add_up(totals: tuple[int, ...] | None, values: tuple[int, ...]) -> tuple[Any, Any]:
    if totals is not None:
        values = tuple(one + other for one, other in zip(totals, values, strict=True))
    return values, values


def run(job: dict[str, Any], path: str, name: str) -> tuple[float, dict[str, tuple[int, ...]]]:
    kept: dict[str, tuple[int, ...]] = {}
    flow = Dataflow("sums")
    rows = op.input("in", flow, Folder(path, job["columns"], job["slots"]))
    totals = op.stateful_map("sum", rows, add_up)
    op.output("out", totals, Newest(kept))
    recovery = Path(f"{job['recovery']}-{name}")
    recovery.mkdir()
    init_db_dir(recovery, job["slots"])
    begin = time.perf_counter()
    cluster_main(
        flow,
        [],
        0,
        epoch_interval=timedelta(seconds=job["interval"]),
        recovery_config=RecoveryConfig(recovery),
        worker_count_per_proc=job["slots"],
    )
    return time.perf_counter() - begin, kept


def main() -> None:
    job = json.loads(sys.argv[1])
    run(job, job["paths"]["uncounted"], "warm-up")
    uncounted, _ = run(job, job["paths"]["uncounted"], "uncounted")
    whole, kept = run(job, job["paths"]["all"], "all")
    mixed = [
        (int(k) % 65537) * (sum((2 ** (i + 1) - 1) * v for i, v in enumerate(sums)) % 65537)
        for k, sums in kept.items()
    ]
    answer = [len(kept), sum(map(sum, kept.values())), sum(mixed)]
    print(json.dumps({"uncounted_seconds": uncounted, "all_seconds": whole, "answer": answer}))


if __name__ == "__main__":
    main()
