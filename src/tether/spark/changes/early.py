"""How rows of a query over a subscription reach a sink: stable ones, and early ones that they replace.

Here an epoch is of one kind, and stable rows come in other epochs than the tentative ones before them:
what a tentative epoch gave is withdrawn by the first stable epoch that comes to one of its buckets
(DPC 2005 §3.4, SOutput).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tether.spark.changes.columns import INSERT, Mark, marked
from tether.spark.changes.correction import corrected
from tether.spark.changes.outlet import Outlet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tether.sources.sunion.offsets import Offset
    from tether.spark.changes.spool import TentativeSpool
    from tether.spark.sinks import Sink


class EarlyOutlet:
    """An outlet for epochs of two kinds.

    Args:
        sink: The query's; an exchange is given both kinds as they are.
        checkpoint: Spark's checkpoint directory.
    """

    def __init__(self, sink: Sink, checkpoint: str) -> None:
        self._outlet = sink if isinstance(sink, Outlet) else Outlet(sink)
        follow = getattr(self._outlet.sink, "follow_subscription", None)
        self._passes_on = follow is not None
        if follow is not None:
            follow(checkpoint)

    def give(self, rows: DataFrame, epoch: int, told: Offset) -> None:
        """Give the rows of an epoch.

        Args:
            rows: The rows.
            epoch: Spark's number of it.
            told: What the epoch is.
        """
        outlet, spool = self._outlet, self._outlet.spool
        mark = Mark(told.kind, epoch)
        if self._passes_on:
            outlet.sink(rows, epoch)
        elif spool is None or told.kind == "tentative":
            if spool is not None:
                spool.note(epoch, told.first, told.end)
            outlet.give(rows, epoch, mark)
        else:
            self._correct(spool, rows, epoch, told)

    def _correct(self, spool: TentativeSpool, rows: DataFrame, epoch: int, told: Offset) -> None:
        outlet, mark = self._outlet, Mark("stable", epoch)
        outlet.check(rows)
        gone = [n for n, (first, _) in spool.noted().items() if told.first <= first < told.end]
        session = rows.sparkSession
        given = [found for n in gone if (found := spool.given(session, rows, n)) is not None]
        mark = mark._replace(replaces=tuple(gone))
        if not given:
            outlet.write(marked(rows, INSERT, epoch, mark), epoch, mark)
            return
        # Stored first, so that the operators run only once, however often the rows are used.
        stable = spool.keep(rows, epoch, "stable")
        early = functools.reduce(lambda one, other: one.unionByName(other), given)
        outlet.write(corrected(early, stable, epoch, mark, outlet.key), epoch, mark)

    def settle(self, told: Offset) -> None:
        """An epoch has begun: forget early rows that an epoch before it has replaced."""
        spool = self._outlet.spool
        if spool is None:
            return
        # If a stable epoch is run again, the tentative rows that it replaces are needed again.
        end = told.first if told.kind == "stable" else told.manager.stable
        for number, (first, _) in spool.noted().items():
            if first < end:
                spool.forget(number)
