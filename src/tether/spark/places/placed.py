"""Where the slots of some operators are, in one session of Spark's, and how rows get there."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tether.core.errors import TetherError
from tether.core.ids import Slot
from tether.policies.recovery import FROM_SNAPSHOT
from tether.protocols.copies import seated
from tether.spark.graph.flow import OperatorNode
from tether.spark.graph.plan import SLOT, plan_of
from tether.spark.places.held_back import HeldBack
from tether.spark.places.pinning import Anchor, has_one_executor
from tether.spark.session import tune_epochs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from tether.protocols.copies import Seats
    from tether.spark.graph.flow import Flow
    from tether.spark.graph.plan import EpochPlan
    from tether.spark.graph.prepared import PreparedOperator

TRIES = 5
"""How often seats are placed until no copy sits beside its slot."""


class Placed:
    """Plans, anchors and watch of one placing.

    Args:
        session: Whose epochs these are.
        flow: The whole graph.
        operators: The operators to place.
        safe: Whether to rely on no partitioning but that of our own shuffle.
        copied: Slots that get a copy, by operator.
    """

    def __init__(
        self,
        session: SparkSession,
        flow: Flow,
        operators: Mapping[OperatorNode, PreparedOperator],
        *,
        safe: bool,
        copied: Mapping[str, tuple[Slot, ...]] | None = None,
    ) -> None:
        self._session = session
        self._anchors: dict[object, Anchor] = {}
        self.seats: dict[str, Seats] = {}
        """Who sits where, of operators that have copies."""
        self._plans: dict[OperatorNode, EpochPlan] = {}
        prepared = list(operators.values())
        # One shuffle can serve groupBy and slots only in operators of the session's own number.
        combining = [p.slots for p in prepared if p.combine is not None]
        fused = combining[0] if combining else prepared[0].slots
        tune_epochs(session, fused, narrow=all(p.narrow for p in prepared))
        for node, one in operators.items():
            copies = (copied or {}).get(node.name, ())
            anchor: Anchor | None
            if copies:
                anchor = self._seated(node, copies)
            else:
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
            if copies:
                plan.seat(self.seats[node.name], in_order=not one.operator.repeats)
            self._plans[node] = plan
        # A part of a snapshot is of use only to a query that goes back as a whole.
        hasty = any(one.policy.recovery == FROM_SNAPSHOT for one in prepared)
        self.hasty = hasty
        """Whether an epoch is broken off as soon as an executor dies."""
        self._held_back = HeldBack(session, hasty=hasty) if self._anchors else None

    def _anchor(self, slots: int) -> Anchor:
        if slots not in self._anchors:
            self._anchors[slots] = Anchor(self._session, slots)
        return self._anchors[slots]

    def _seated(self, node: OperatorNode, copies: tuple[Slot, ...]) -> Anchor | None:
        """Place an operator's seats so that no copy sits beside its slot; try several times."""
        # A session that brings its own plans brings its own places; see tether.testing.inprocess.
        own = getattr(self._session, "tether_places", None)
        number = node.slots + len(copies)
        for _ in range(TRIES):
            anchor = Anchor(self._session, number) if own is None else None
            places = anchor.places() if anchor is not None else own(number)  # type: ignore[misc]
            seats = seated(node.slots, copies, places)
            if seats is not None:
                self.seats[node.name] = seats
                if anchor is not None:
                    self._anchors[node.name] = anchor
                return anchor
            if anchor is not None:
                anchor.release()
        raise TetherError(
            f"Copies of {node.name!r} cannot be kept apart from their slots.",
            why="Spark placed all of them on one executor.",
            do="Give the query at least two executors with free cores, or leave the copies out.",
        )

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
        seats = self.seats.get(node.name)
        number = node.slots if seats is None else len(seats.runs)
        rows = (
            self._session.range(0, number, 1, 1)
            .selectExpr(f"CAST(id AS INT) AS {SLOT}")
            .repartitionById(number, SLOT)
        )
        anchor = self._anchors.get(node.slots if seats is None else node.name)
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
