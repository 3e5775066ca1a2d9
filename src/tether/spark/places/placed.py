"""Where the slots of some operators are, in one session of Spark's, and how rows get there."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tether.spark.graph.flow import OperatorNode
from tether.spark.graph.plan import SLOT, plan_of
from tether.spark.places.held_back import HeldBack
from tether.spark.places.pinning import Anchor, has_one_executor
from tether.spark.session import tune_epochs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from tether.spark.graph.flow import Flow
    from tether.spark.graph.plan import EpochPlan
    from tether.spark.graph.prepared import PreparedOperator


class Placed:
    """Plans, anchors and watch of one placing.

    Args:
        session: Whose epochs these are.
        flow: The whole graph.
        operators: The operators to place.
        safe: Whether to rely on no partitioning but that of our own shuffle.
    """

    def __init__(
        self,
        session: SparkSession,
        flow: Flow,
        operators: Mapping[OperatorNode, PreparedOperator],
        *,
        safe: bool,
    ) -> None:
        self._session = session
        self._anchors: dict[int, Anchor] = {}
        self._plans: dict[OperatorNode, EpochPlan] = {}
        prepared = list(operators.values())
        # One shuffle can serve groupBy and slots only in operators of the session's own number.
        combining = [p.slots for p in prepared if p.combine is not None]
        fused = combining[0] if combining else prepared[0].slots
        tune_epochs(session, fused, narrow=all(p.narrow for p in prepared))
        for node, one in operators.items():
            anchor = None if has_one_executor(session) else self._anchor(node.slots)
            before = flow.upstream(node.parents)
            plan = plan_of(session)(
                node.key,
                node.slots,
                one.combine,
                anchor,
                node.event_time,
                from_source=not any(isinstance(other, OperatorNode) for other in before),
            )
            if safe or (one.combine is not None and node.slots != fused):
                plan.unfuse()
            self._plans[node] = plan
        self._held_back = HeldBack(session) if self._anchors else None

    def _anchor(self, slots: int) -> Anchor:
        if slots not in self._anchors:
            self._anchors[slots] = Anchor(self._session, slots)
        return self._anchors[slots]

    @property
    def pinned(self) -> bool:
        """Whether slots are pinned to executors: there are several."""
        return bool(self._anchors)

    def rows_by_slot(self, node: OperatorNode, rows: DataFrame) -> DataFrame:
        """An operator's rows, each in the partition of its slot."""
        return self._plans[node].rows_by_slot(rows)

    def unfuse(self) -> None:
        """From now on, rely on no partitioning but that of our own shuffle."""
        for plan in self._plans.values():
            plan.unfuse()

    def watched(self) -> AbstractContextManager[Any]:
        """Watches for tasks that Spark holds back after an executor's death."""
        return nullcontext() if self._held_back is None else self._held_back.watched()

    def punctuation(self, node: OperatorNode) -> DataFrame:
        """A row for each slot that says only that the epoch is over."""
        rows = (
            self._session.range(0, node.slots, 1, 1)
            .selectExpr(f"CAST(id AS INT) AS {SLOT}")
            .repartitionById(node.slots, SLOT)
        )
        anchor = self._anchors.get(node.slots)
        return rows if anchor is None else anchor.pin(rows)

    def release(self, *, stay: bool = False) -> None:
        """Let go; with ``stay``, slots remain pinned: another placing will find the same anchors."""
        if self._held_back is not None:
            self._held_back.end()
            self._held_back = None
        if not stay:
            for anchor in self._anchors.values():
                anchor.release()
        self._anchors.clear()
