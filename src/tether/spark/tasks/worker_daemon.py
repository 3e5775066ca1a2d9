"""Spark's Python daemon with everything loaded that a slot's task needs.

Spark starts one daemon for each executor, and forks a Python worker from it for each task that finds
none idle. A worker that has to load Arrow, pandas and Tether first takes two seconds of a core before
it does anything: after a kill, after a minute without work, for every slot of an executor that was
just started. Forked from this daemon it has them.

Spark's own daemon loads nothing, so that no thread is there when it forks. Here there is one, Arrow's
allocator's, which is made for that; numpy starts none, because Spark sets OMP_NUM_THREADS.

Our own commands use it. In a session of your own it is a setting before the session starts:
``.config("spark.python.daemon.module", "tether.spark.tasks.worker_daemon")``. Tether must be
installed on every executor, as it must be anyway.
"""

from __future__ import annotations

import pandas as pd  # noqa: F401 - loaded for those that are forked, like all below
import pyarrow.compute
import pyarrow.ipc  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import tether.spark.tasks.task  # noqa: F401

if __name__ == "__main__":
    manager()
