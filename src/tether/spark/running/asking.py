"""Requests of a user to a running query: a snapshot now, the rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tether.engine.query.runner import Runner
    from tether.spark.graph.prepared import PreparedOperator
    from tether.spark.tasks.cluster import SparkCluster


def ask_for_snapshot(runners: Sequence[Runner[SparkCluster]]) -> None:
    """Begin a snapshot with the next epoch.

    Raises:
        BadValueError: No epoch has run, or the policy takes no snapshots.
    """
    keepers = [one.books.keeper for one in runners if one.books.keeper is not None]
    if not keepers:
        raise BadValueError(
            "No snapshot can be taken.",
            why="No epoch has run yet, or the query's policy takes no snapshots.",
            do="Choose a policy with snapshots, such as tether.Barrier, and wait for an epoch.",
        )
    for keeper in keepers:
        keeper.ask()


def table_of(
    runners: Sequence[Runner[SparkCluster]], prepared: PreparedOperator, name: str
) -> DataFrame:
    """A table of an operator's resident state, as of its last committed epoch.

    Raises:
        BadValueError: No epoch has run, or slots are behind the others.
    """
    runner = next((one for one in runners if prepared.name in one.books.operators), None)
    if runner is None:
        raise BadValueError(
            f"The table {name!r} cannot be read yet.",
            why="No epoch has run.",
            do="Wait for the first epoch, for example with processAllAvailable().",
        )
    if runner.catching_up.now is not None:
        raise BadValueError(
            f"The table {name!r} cannot be read now.",
            why="After a loss some slots are reading the stream again, and are behind the others.",
            do="Wait for them, for example with processAllAvailable().",
        )
    return runner.cluster.table(runner.orders, prepared.node, name, runner.committed_epoch)
