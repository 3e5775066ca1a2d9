"""The Python that Spark's workers run: by default the driver's own."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def use_drivers_python(session: SparkSession) -> None:
    """Let the workers of a local session run the driver's Python, where none was chosen.

    PySpark takes the first ``python3`` on the path. Where a program is run by the Python of an
    environment that is not activated, that is another one, mostly without the modules that the
    program needs. On a cluster the driver's path need not exist, so nothing is changed there.
    """
    context: Any = getattr(session, "sparkContext", None)
    chosen = os.environ.get("PYSPARK_PYTHON")
    if chosen or not hasattr(context, "pythonExec") or not hasattr(context, "getConf"):
        return
    on_this_machine = str(context.master).startswith("local")
    if not on_this_machine or context.getConf().get("spark.pyspark.python"):
        return
    if context.pythonExec != sys.executable:
        _log.info("Spark's workers run %s instead of %s", sys.executable, context.pythonExec)
        context.pythonExec = sys.executable


def worker_python() -> str:
    """The Python that the workers of the running session are started with; empty if there is none."""
    from pyspark import SparkContext  # noqa: PLC0415 - whoever has a query has PySpark

    context = SparkContext._active_spark_context
    return "" if context is None else str(getattr(context, "pythonExec", ""))
