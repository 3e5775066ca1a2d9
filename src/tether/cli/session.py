"""The Spark session of our own commands: the library itself never creates one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tether.spark.session import FAIR_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def open_session(
    master: str,
    *,
    app: str = "tether",
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on loopback, with the settings that every command and benchmark shares.

    Args:
        master: Spark's master URL; our own default is ``local[2,4]``, for plain local mode retries
            no task.
        app: Name of the application.
        memory: Heap of the driver, which in local mode is also the executor.
        settings: More settings of Spark; they go before ours.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # not whatever python3 is on the path
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the environment must be set first

    builder = (
        SparkSession.builder.master(master)
        .appName(app)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", memory)
        .config("spark.sql.streaming.checkpointFileManagerClass", FAIR_CHECKPOINTS)
        # Slots are pinned by locality: Spark must not trade it for a free core elsewhere, ...
        .config("spark.shuffle.reduceLocality.enabled", "false")
        .config("spark.locality.wait", "60s")
        # ... and long runs with many kills must not run out of attempts.
        .config("spark.task.maxFailures", "16")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
    )
    if master.startswith("local-cluster"):
        builder = builder.config("spark.executor.memory", "512m")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
