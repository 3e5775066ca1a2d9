"""Rows between two lanes of a query: in the checkpoint directory.

Durable before Spark commits the epoch that made them, so a driver that dies loses none. They are
written over and over in a ring of staleness + 2 places: before a place is used again, the epoch that
was there has been done by the lane behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tether.spark.graph.flow import Node
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.sinks import Sink


class Spool:
    """The rows of the boundary nodes, by epoch.

    Args:
        checkpoint: Spark's checkpoint directory.
        boundary: Nodes whose rows go from the lane ahead to the one behind.
        query: Says how far the lanes may be apart.
    """

    def __init__(self, checkpoint: str, boundary: Sequence[Node], query: PreparedQuery) -> None:
        self._root, self._boundary = f"{checkpoint}/tether/spool", list(boundary)
        self._places = query.consistency.staleness + 2

    def sinks(self) -> list[tuple[Node, Sink]]:
        """Sinks of the lane ahead that write what the one behind will read."""
        return [(node, self._writer(number)) for number, node in enumerate(self._boundary)]

    def _writer(self, number: int) -> Sink:
        def write(rows: DataFrame, epoch: int) -> None:
            rows.write.mode("overwrite").parquet(self._path(number, epoch))

        return write

    def read(self, session: SparkSession, epoch: int) -> dict[Node, DataFrame]:
        """The rows that the lane behind gets in an epoch."""
        return {
            node: session.read.parquet(self._path(number, epoch))
            for number, node in enumerate(self._boundary)
        }

    def _path(self, number: int, epoch: int) -> str:
        return f"{self._root}/{number}/{epoch % self._places}"
