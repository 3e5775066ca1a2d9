"""Tether: bounded-error fault tolerance for Spark streams.

State is backed up only when it has drifted from its last backup by more than the user allowed; after
any number of failures the answer is wrong by no more than a stated bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.errors import TetherError
from tether.core.windows import Decaying, Hopping, Sliding
from tether.numpy_columns import to_numpy
from tether.operator import DURABLE, EndedWindow, Loss, Operator
from tether.output import Output
from tether.policies.approximate import Approximate
from tether.policies.available import Available
from tether.policies.barrier import Barrier
from tether.policies.mini_batch import MiniBatch
from tether.policies.no_tolerance import NoTolerance
from tether.policies.partially_active import PartiallyActive
from tether.policies.upstream_backup import UpstreamBackup

if TYPE_CHECKING:
    from tether.sources.exchange.gateway_input import GatewayInput
    from tether.sources.exchange.ingest import ingest
    from tether.sources.exchange.sink import to_exchange
    from tether.sources.replica import Replica
    from tether.sources.sunion.subscribe import subscribe
    from tether.spark.changes.feed import to_changes
    from tether.spark.changes.memory import to_memory
    from tether.spark.changes.reader import read_changes
    from tether.spark.epoch_lines import EpochLines
    from tether.spark.epoch_sink import to_epochs
    from tether.spark.graph.consistency import ASP, BSP, SSP
    from tether.spark.kafka import rows_once, to_kafka
    from tether.spark.query import Query
    from tether.spark.sinks import to_format
    from tether.spark.stream import stream

__version__ = "0.1.0"

__all__ = [
    "ASP",
    "BSP",
    "DURABLE",
    "SSP",
    "Approximate",
    "Available",
    "Barrier",
    "Decaying",
    "EndedWindow",
    "EpochLines",
    "GatewayInput",
    "Hopping",
    "Loss",
    "MiniBatch",
    "NoTolerance",
    "Operator",
    "Output",
    "PartiallyActive",
    "Query",
    "Replica",
    "Sliding",
    "TetherError",
    "UpstreamBackup",
    "ingest",
    "read_changes",
    "rows_once",
    "stream",
    "subscribe",
    "to_changes",
    "to_epochs",
    "to_exchange",
    "to_format",
    "to_kafka",
    "to_memory",
    "to_numpy",
]

_NEEDS_SPARK = {
    "ASP": "tether.spark.graph.consistency",
    "BSP": "tether.spark.graph.consistency",
    "SSP": "tether.spark.graph.consistency",
    "EpochLines": "tether.spark.epoch_lines",
    "GatewayInput": "tether.sources.exchange.gateway_input",
    "Query": "tether.spark.query",
    "Replica": "tether.sources.replica",
    "ingest": "tether.sources.exchange.ingest",
    "read_changes": "tether.spark.changes.reader",
    "stream": "tether.spark.stream",
    "subscribe": "tether.sources.sunion.subscribe",
    "to_changes": "tether.spark.changes.feed",
    "to_exchange": "tether.sources.exchange.sink",
    "to_epochs": "tether.spark.epoch_sink",
    "rows_once": "tether.spark.kafka",
    "to_format": "tether.spark.sinks",
    "to_kafka": "tether.spark.kafka",
    "to_memory": "tether.spark.changes.memory",
}


def __getattr__(name: str) -> Any:
    """Import what needs PySpark only when it is asked for, with a clear word if it is missing."""
    if name == "ui":
        from importlib import import_module  # noqa: PLC0415 - lazily, as all of this

        return import_module("tether.ui")
    if name not in _NEEDS_SPARK:
        raise AttributeError(f"module 'tether' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - lazily, as all of this

    try:
        return getattr(import_module(_NEEDS_SPARK[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "pyspark":
            raise
        raise TetherError(
            "PySpark is not installed.",
            why=f"tether.{name} runs on Spark.",
            do="Install it with: pip install 'tether[spark]'",
        ) from error
