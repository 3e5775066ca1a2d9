"""The Spark session of our own commands: the library itself never creates one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tether.spark.session import FAIR_CHECKPOINTS, WARM_DAEMON

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def open_session(
    master: str,
    *,
    app: str = "tether",
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with the settings that every command and benchmark shares.

    It listens on loopback, or where the environment's SPARK_LOCAL_IP says.

    Args:
        master: Spark's master URL; our own default is ``local[2,4]``, for plain local mode retries
            no task.
        app: Name of the application.
        memory: Heap of the driver, which in local mode is also the executor.
        conf: Further settings of Spark, which go before our own.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # not whatever python3 is on the path
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the environment must be set first

    builder = (
        SparkSession.builder.master(master)
        .appName(app)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", os.environ["SPARK_LOCAL_IP"])
        .config("spark.driver.bindAddress", os.environ["SPARK_LOCAL_IP"])
        .config("spark.driver.memory", memory)
        .config("spark.sql.streaming.checkpointFileManagerClass", FAIR_CHECKPOINTS)
        .config("spark.python.daemon.module", WARM_DAEMON)
        # All cores read, also where an epoch is one file of a few megabytes: by default Spark counts
        # opening a file as four of them, and leaves such an epoch to one task.
        .config("spark.sql.files.openCostInBytes", "262144")
        # An epoch's groups fit into the faster of the two hash tables that Spark aggregates with: a
        # quarter of a million of them, where by default it turns to the slower one after 65,536.
        .config("spark.sql.codegen.aggregate.fastHashMap.capacityBit", "18")
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
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if " " in os.environ["PYSPARK_PYTHON"]:
        # Spark asks a shell for such a Python without quoting it, and then looks for no source.
        from tether.sources.gateway.spark_source import register  # noqa: PLC0415 - rarely needed

        register(session)
    return session
