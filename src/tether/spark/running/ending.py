"""The end of a query's lanes: state is made durable, arenas are removed, places are given back."""

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
"""How long stop() waits in all: for Spark, for an epoch that is still at work, for a twin."""


def end_lanes(
    runners: Sequence[Runner[SparkCluster]],
    checkpoint: str,
    *,
    flush: bool,
    clean: bool,
    spark_epoch: Callable[[Epoch], Epoch | None] | None = None,
) -> Epoch:
    """End all lanes; give the last epoch that stands.

    Args:
        runners: One for each lane, that of the sources first.
        checkpoint: Spark's checkpoint directory.
        flush: Whether to make durable what is not yet.
        clean: Whether to remove the arenas even without that. Else they stay after an error: with
            them a restart loses nothing.
        spark_epoch: Spark's number of an epoch, where it has another; None of an epoch that is not
            Spark's.
    """
    last = runners[0].committed_epoch
    number = last if spark_epoch is None else spark_epoch(last)
    session = runners[0].cluster.session
    if number is not None and not spark_committed(session, checkpoint, number):
        last = epoch_before(last)  # it is run again: what is made durable must be without it
    for runner in runners:
        if flush:
            runner.flush(min(last, runner.committed_epoch))
        if flush or clean:
            runner.clean()
        runner.release()
    return last


def spark_committed(session: SparkSession, checkpoint: str, epoch: Epoch) -> bool:
    """Whether Spark's own commit log, wherever it is, has the epoch."""
    path = local_path(checkpoint)
    if path is not None and (path / "offsets").exists():
        return (path / "commits" / str(epoch)).exists()
    try:
        session.read.text(f"{checkpoint}/commits/{epoch}").collect()
    except AnalysisException:
        return False
    return True
