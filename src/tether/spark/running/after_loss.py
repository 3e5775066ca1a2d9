"""Makes what lets a query continue after a loss, where its policy asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.spark.graph.exactness import heal_of, heals_by_itself, snapshots_of
from tether.spark.running.meanwhile import Meanwhile
from tether.spark.running.remains import left_behind, refuse_unfinished, unfinished

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.engine.query.lane import LanePlan
    from tether.engine.query.runner import Runner
    from tether.observe.story import Story
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.tasks.cluster import SparkCluster


def meanwhile_for(
    query: PreparedQuery,
    checkpoint: str,
    story: Story,
    *,
    swap: Callable[[LanePlan, Runner[SparkCluster]], None],
    fail: Callable[[BaseException], None],
) -> Meanwhile | None:
    """As the policy of the query has it; None where it goes back itself, or loses what is lost.

    Args:
        query: The query, checked and ready.
        checkpoint: Spark's checkpoint directory; a take-over that an earlier run began is noted there.
        story: The query's account of itself.
        swap: Called when a twin's slots are the query's from now on.
        fail: Called when a twin has failed for good.
    """
    snapshots, left = snapshots_of(query), unfinished(checkpoint)
    if snapshots is None:
        refuse_unfinished(left)
        heal = heal_of(query)
        if heal is None:
            return None
        return Meanwhile(
            query,
            checkpoint,
            story,
            how=None,
            strategy=heal.strategy,
            swap=swap,
            fail=fail,
            heals="at once" if heals_by_itself(query) else "on demand",
        )
    if snapshots.meanwhile is None and left is None and not left_behind(checkpoint):
        return None
    return Meanwhile(
        query,
        checkpoint,
        story,
        how=snapshots.meanwhile,
        strategy=snapshots.strategy,
        swap=swap,
        fail=fail,
    )
