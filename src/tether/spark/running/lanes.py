"""The lanes of a query on Spark, before their first epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.engine.query.feedback_box import FeedbackBox
from tether.engine.query.lane import LanePlan
from tether.engine.query.log_opening import marks_for
from tether.spark.graph.split import split
from tether.spark.logs.spool import Spool
from tether.spark.tasks.jobs import LaneGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.engine.ports import Reports
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.running.stores import OpenStore


class Lanes(NamedTuple):
    """The lanes; that of the sources first."""

    lanes: list[tuple[LaneGraph, LanePlan]]
    spool: Spool
    """Rows from one lane to the next."""


def lanes_of(
    query: PreparedQuery,
    stores: Sequence[OpenStore | None],
    checkpoint: str,
    run_id: str,
    reports: Reports,
) -> Lanes:
    """Divide a query into lanes.

    Args:
        query: The query, checked and ready.
        stores: The backup store of each lane; None where nothing is kept.
        checkpoint: Spark's checkpoint directory.
        run_id: Id of this driver's run.
        reports: The query's account of itself.
    """
    cut = split(query)
    spool = Spool(checkpoint, cut.boundary, query)
    feedback = FeedbackBox(apart=query.consistency.splits)
    lanes = [
        (
            LaneGraph(
                query.flow,
                nodes,
                {node: query.operators[node] for node in nodes if node in query.operators},
                [*sinks, *spool.sinks()] if number == 0 else sinks,
                query.copies,
            ),
            LanePlan(
                operators={p.name: p for n, p in query.operators.items() if n in nodes},
                settings=query.settings,
                store=store.store if store else None,
                address=store.address if store else None,
                run_id=run_id,
                reports=reports,
                feedback=feedback,
                marks=marks_for(checkpoint, number, store.address) if store else (),
                all_slots=number > 0,
            ),
        )
        for number, (nodes, sinks, store) in enumerate(
            zip(cut.nodes, cut.sinks, stores, strict=True)
        )
    ]
    return Lanes(lanes, spool)
