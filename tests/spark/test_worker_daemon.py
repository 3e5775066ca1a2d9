"""The daemon that Python workers are forked from: what is loaded there, and what must not run there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

from tether.spark.session import WARM_DAEMON
from tether.testing.processes import command_of


def test_workers_are_forked_with_everything_loaded_from_a_process_without_threads_of_its_own(spark):
    def look(batches):
        """From inside a worker: the modules it was forked with, and the daemon's threads."""
        loaded = {"tether.engine.slot.epoch", "pandas", "pyarrow.compute"} <= sys.modules.keys()
        daemon = Path("/proc") / str(os.getppid())
        threads = [(thread / "comm").read_text().strip() for thread in (daemon / "task").iterdir()]
        for batch in batches:
            rows = batch.num_rows
            told = {
                "loaded": [loaded] * rows,
                "daemon": [os.getppid()] * rows,
                "threads": [",".join(sorted(threads))] * rows,
            }
            yield pa.RecordBatch.from_pydict(told)

    schema = "loaded boolean, daemon long, threads string"
    (row,) = spark.range(1, numPartitions=1).mapInArrow(look, schema).collect()
    assert row["loaded"]
    assert WARM_DAEMON in command_of(row["daemon"])
    # A lock that some other thread holds during a fork is held in the worker for ever. Arrow's
    # allocator knows; any other thread here would not.
    assert set(row["threads"].split(",")) <= {"python", "python3", "python3.11", "jemalloc_bg_thd"}
