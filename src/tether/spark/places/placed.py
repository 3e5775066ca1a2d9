"""The placement of some operators' slots in one Spark session, and how rows reach them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from tether.core.errors import TetherError
from tether.core.ids import Slot
from tether.policies.recovery import FROM_SNAPSHOT
from tether.protocols.copies import beside, seated, seats_needed
from tether.spark.graph.flow import OperatorNode
from tether.spark.graph.plan import SLOT, SlotRows, plan_of
from tether.spark.places.held_back import HeldBack
from tether.spark.places.pinning import Anchor, has_one_executor
from tether.spark.places.spreading import live_executors
from tether.spark.session import tune_epochs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from tether.engine.operators import CopyPlan
    from tether.protocols.copies import Seats
    from tether.spark.folding.folding import FoldedRows
    from tether.spark.graph.flow import Flow
    from tether.spark.graph.plan import EpochPlan
    from tether.spark.graph.prepared import PreparedOperator

PATIENCE = 20.0
"""Most seconds to wait until executors stop joining."""
TRIES = 5
"""Number of attempts to place seats so that no copy shares an executor with its slot."""
SPARE = 1
"""Number of idle seats of an operator, where copies move with the rates."""


class Seating(NamedTuple):
    """How the seats of operators that have copies are to be placed."""

    copied: Mapping[str, tuple[Slot, ...]]
    """Slots that get a copy, by operator."""
    plan: CopyPlan
    strict: bool
    """Whether it is an error if copies cannot be kept apart from their slots; otherwise any seat is
    accepted."""


class Placed:
    """Plans, anchors and watch of one placing.

    Args:
        session: Whose epochs these are.
        flow: The whole graph.
        operators: The operators to place.
        name: Name of the placement; the same name gives the same places in every session.
        safe: Whether to rely on no partitioning but that of our own shuffle.
        fold: Whether rows may be folded where they are read.
        seating: How copies are placed, where there are any.
        stay_as: The seats so far, for a placement that changes nothing.
    """

    def __init__(
        self,
        session: SparkSession,
        flow: Flow,
        operators: Mapping[OperatorNode, PreparedOperator],
        name: str,
        *,
        safe: bool,
        fold: bool,
        seating: Seating | None = None,
        stay_as: Mapping[str, Seats] | None = None,
    ) -> None:
        self._session, self._name, self._seating = session, name, seating
        self._stays = stay_as is not None
        self._anchors: dict[object, Anchor] = {}
        self.seats: dict[str, Seats] = dict(stay_as or {})
        """The seats of operators that have copies."""
        self._plans: dict[OperatorNode, EpochPlan] = {}
        self._operators = operators
        prepared = list(operators.values())
        # One shuffle can serve groupBy and slots only in operators of the session's own number.
        combining = [p.slots for p in prepared if p.combine is not None]
        fused = combining[0] if combining else prepared[0].slots
        # Parcels are few and may be large, so Spark must limit batches by their bytes.
        tune_epochs(session, fused, narrow=all(p.narrow and _folded(p) is None for p in prepared))
        for node, one in operators.items():
            seating = self._seating_of(node)
            anchor: Anchor | None
            if seating is not None:
                anchor = self._seated(node, seating)
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
                folded=_folded(one) if anchor is None else None,
            )
            if safe or (one.combine is not None and node.slots != fused):
                plan.unfuse()
            self._plans[node] = plan
            if seating is not None:
                self.reseat(node.name, self.seats[node.name])
        if not fold:
            self.unfold()
        # A part of a snapshot is of use only to a query that goes back as a whole.
        hasty = any(one.policy.recovery == FROM_SNAPSHOT for one in prepared)
        self.hasty = hasty
        """Whether an epoch is broken off as soon as an executor dies."""
        self._held_back = HeldBack(session, hasty=hasty) if self._anchors else None

    def _seating_of(self, node: OperatorNode) -> Seating | None:
        """The plan of an operator's seats; None where it cannot have copies."""
        seating = self._seating
        if seating is None or not (seating.copied.get(node.name) or seating.plan.gain is not None):
            return None
        return seating

    def reseat(self, operator: str, seats: Seats) -> None:
        """Send rows of an operator to these seats from now on."""
        node = next(node for node in self._plans if node.name == operator)
        self.seats[operator] = seats
        self._plans[node].seat(seats, in_order=not self._operators[node].operator.repeats)

    def _anchor(self, slots: int) -> Anchor:
        if slots not in self._anchors:
            self._anchors[slots] = self._make(slots, self._name)
        return self._anchors[slots]

    def _make(self, number: int, name: str) -> Anchor:
        return Anchor(self._session, number, name, patience=0.0 if self._stays else PATIENCE)

    def _seated(self, node: OperatorNode, seating: Seating) -> Anchor | None:
        """Place an operator's seats so that no copy sits beside its slot; try several times."""
        # A session with its own plans has its own places; see tether.testing.inprocess.
        own = getattr(self._session, "tether_places", None)
        seats = self.seats.get(node.name)
        if self._stays and seats is not None:
            if own is None:
                self._anchors[node.name] = self._make(len(seats.runs), self._named(node))
            return self._anchors.get(node.name)
        copies = seating.copied.get(node.name, ())
        for attempt in range(TRIES):
            number = self._number(node, seating.plan, len(copies), attempt)
            anchor = self._make(number, self._named(node)) if own is None else None
            places = anchor.places() if anchor is not None else own(number)  # type: ignore[misc]
            seats = seated(node.slots, copies, places, seating.plan.standby)
            if seats is None and attempt == TRIES - 1 and not seating.strict:
                seats = beside(node.slots, copies, places)
            if seats is not None:
                self.seats[node.name] = seats
                if anchor is not None:
                    self._anchors[node.name] = anchor
                return anchor
            if anchor is not None:
                anchor.release()
        standby = seating.plan.standby
        raise TetherError(
            f"Copies of {node.name!r} cannot be kept apart from their slots.",
            why="Spark placed all of them on one executor."
            if not standby
            else f"Spark did not leave enough places on {standby} executors beside those of the slots.",
            do="Give the query at least two executors with free cores, or leave the copies out."
            if not standby
            else f"Give it more than {standby} executors with free cores, or leave standby out.",
        )

    def _named(self, node: OperatorNode) -> str:
        return f"{self._name}-{list(self._operators).index(node)}"

    def _number(self, node: OperatorNode, plan: CopyPlan, copies: int, attempt: int) -> int:
        """How many seats to place: more with every attempt, where some of them must be on standby."""
        spare = SPARE if plan.gain is not None else 0
        own = getattr(self._session, "tether_executors", None)
        context = self._session.sparkContext
        executors = own() if own is not None else len(live_executors(context)) - 1
        number = seats_needed(node.slots, copies + spare, executors, plan.standby)
        return number + (attempt * executors if plan.standby else 0)

    @property
    def pinned(self) -> bool:
        """Whether slots are pinned to executors: there are several."""
        return bool(self._anchors)

    def rows_by_slot(self, node: OperatorNode, rows: DataFrame) -> SlotRows:
        """An operator's rows, each in the partition of its slot."""
        return self._plans[node].rows_by_slot(rows)

    def unfuse(self) -> None:
        """From now on, rely only on the partitioning of our own shuffle."""
        for plan in self._plans.values():
            plan.unfuse()

    def unfold(self) -> bool:
        """From now on, let Spark read all rows; False if it does already."""
        did = [plan.unfold() for plan in self._plans.values()]
        return any(did)

    def read_by_us(self) -> list[FoldedRows]:
        """What reads and folds rows itself, in the newest epoch."""
        return [plan.folded for plan in self._plans.values() if plan.folded is not None]

    def watched(self) -> AbstractContextManager[Any]:
        """Watches for tasks that Spark holds back after an executor's death."""
        return nullcontext() if self._held_back is None else self._held_back.watched()

    def punctuation(self, node: OperatorNode) -> SlotRows:
        """A row for each slot that says only that the epoch is over."""
        seats = self.seats.get(node.name)
        number = node.slots if seats is None else len(seats.runs)
        rows = (
            self._session.range(0, number, 1, 1)
            .selectExpr(f"CAST(id AS INT) AS {SLOT}")
            .repartitionById(number, SLOT)
        )
        anchor = self._anchors.get(node.slots if seats is None else node.name)
        return SlotRows(rows if anchor is None else anchor.pin(rows))

    def release(self, *, stay: bool = False) -> None:
        """Release the placement; with ``stay``, slots remain pinned where they are."""
        if self._held_back is not None:
            self._held_back.end()
            self._held_back = None
        if not stay:
            for anchor in self._anchors.values():
                anchor.release()
        self._anchors.clear()


def _folded(one: PreparedOperator) -> FoldedRows | None:
    if one.folding is None or isinstance(one.folding, str):
        return None
    return one.folding.for_slots(one.slots)
