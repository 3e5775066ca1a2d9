"""The lanes of a query whose first epoch has begun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tether.core.ids import epoch_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tether.engine.query.rewinder import Rewinder
    from tether.engine.query.runner import Runner
    from tether.spark.running.loop import BehindLoop
    from tether.spark.tasks.cluster import SparkCluster


@dataclass(frozen=True)
class OpenLanes:
    """What runs epochs until the query ends, or gets another number of slots."""

    runners: list[Runner[SparkCluster]]
    """One for each lane; that of the sources first."""
    rewinder: Rewinder
    behind: BehindLoop | None
    """Runs the second lane, where there is one."""

    def renew(self, session: SparkSession, *, stay: bool) -> None:
        """Continue in another session of Spark.

        Args:
            session: Of the epochs from now on.
            stay: Whether slots stay where they are; otherwise they are placed again.
        """
        for runner in self.runners:
            runner.cluster.renew(session)
            if stay:
                runner.cluster.place(stay=True)
            else:
                runner.move()

    def snapshot_epoch(self) -> Callable[[], int] | None:
        """How to learn which epoch the query would go back to; None where it never goes back."""
        runner = self.runners[0]
        if runner.books.keeper is None:
            return None

        def newest() -> int:
            found = runner.books.newest_snapshot(epoch_after(runner.committed_epoch))
            return -1 if found is None else found.epoch

        return newest
