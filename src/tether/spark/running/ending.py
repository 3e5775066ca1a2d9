"""The end of a query's lanes: state is made durable, arenas are removed, placements are released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from tether.backup.places import local_path
from tether.core.ids import Epoch, epoch_before

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from tether.engine.query.runner import Runner
    from tether.spark.tasks.cluster import SparkCluster

STOP_SECONDS = 60.0
"""Seconds that stop() waits in all: for Spark, for an epoch that is still running, for a twin."""


def end_lanes(
    runners: Sequence[Runner[SparkCluster]],
    checkpoint: str,
    *,
    flush: bool,
    clean: bool,
    spark_epoch: Callable[[Epoch], Epoch | None] | None = None,
) -> Epoch:
    """End all lanes; returns the last epoch that counts.

    Args:
        runners: One for each lane, that of the sources first.
        checkpoint: Spark's checkpoint directory.
        flush: Whether to make state durable that is not yet.
        clean: Whether to remove the arenas even without that. Else they stay after an error: with
            them a restart loses nothing.
        spark_epoch: Spark's number of an epoch, where it has another; None of an epoch that is not
            Spark's.
    """
    last = runners[0].committed_epoch
    number = last if spark_epoch is None else spark_epoch(last)
    session = runners[0].cluster.session
    if number is not None and not spark_committed(session, checkpoint, number):
        last = epoch_before(last)  # it is run again, so its changes must not be made durable
    for runner in runners:
        if flush:
            runner.flush(min(last, runner.committed_epoch))
        if flush or clean:
            runner.clean()
        runner.release()
    return last


def spark_committed(session: SparkSession, checkpoint: str, epoch: Epoch) -> bool:
    """Whether Spark's own commit log has the epoch."""
    path = local_path(checkpoint)
    if path is not None and (path / "offsets").exists():
        return (path / "commits" / str(epoch)).exists()
    try:
        session.read.text(f"{checkpoint}/commits/{epoch}").collect()
    except AnalysisException:
        return False
    return True
