"""An epoch's Spark jobs: rows to slots, slots to sinks, and no slot left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tether.core.errors import TetherError
from tether.core.graph import SlotId
from tether.core.ids import Epoch, each_slot
from tether.spark.graph.flow import Node, OperatorNode, StepNode, evaluate
from tether.spark.sinks import discard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from tether.engine.messages import SlotStatus
    from tether.engine.operators import CopyPlan
    from tether.engine.ports import Statuses
    from tether.spark.graph.flow import Flow
    from tether.spark.graph.plan import SlotRows
    from tether.spark.graph.prepared import PreparedOperator
    from tether.spark.places.placed import Placed
    from tether.spark.sinks import Sink
    from tether.spark.tasks.statuses import StatusBoard

Task = Callable[["OperatorNode", "SlotRows"], "DataFrame"]


@dataclass(frozen=True)
class LaneGraph:
    """The nodes of one lane.

    Args:
        flow: The whole graph.
        nodes: The lane's nodes, parents first; rows of their other parents are given with each epoch.
        operators: The operators among them.
        sinks: Ends of the lane.
        copies: Which slots get a copy; None where none do.
    """

    flow: Flow
    nodes: Sequence[Node]
    operators: Mapping[OperatorNode, PreparedOperator]
    sinks: Sequence[tuple[Node, Sink]]
    copies: CopyPlan | None = None


class EpochJobs:
    """One attempt to run an epoch.

    Args:
        lane: The nodes to run.
        placed: Where slots are.
        board: Receives their reports.
        epoch: Number of the epoch.
        safe: Whether to rely on no partitioning but that of our own shuffle and our own jobs.
        task: Makes an operator's output from its rows, each in the partition of its slot.
        begin_turn: Called before slots are given the epoch; numbers the turn.
    """

    def __init__(
        self,
        lane: LaneGraph,
        placed: Placed,
        board: StatusBoard,
        epoch: Epoch,
        *,
        safe: bool,
        task: Task,
        begin_turn: Callable[[], int],
    ) -> None:
        self._lane, self._placed, self._board, self._epoch = lane, placed, board, epoch
        self._safe, self._task, self._begin_turn = safe, task, begin_turn

    def run(self, given: Mapping[Node, DataFrame], only: Collection[str] | None) -> Statuses:
        """Run every slot, through the sinks where they take the rows; give the reports.

        Args:
            given: Rows of sources, and of nodes of another lane.
            only: Operators to run, without any sink; all by default.
        """
        self._begin_turn()
        kept: list[DataFrame] = []
        sinks = self._lane.sinks if only is None else []
        wanted = [node for node in self._lane.operators if only is None or node.name in only]

        def operate(node: OperatorNode, rows: DataFrame) -> DataFrame:
            return self._task(node, self._placed.rows_by_slot(node, rows))

        def keep(node: Node, rows: DataFrame) -> DataFrame:
            regrouped = self._may_be_regrouped(node)
            if self._consumers(node) > 1 or regrouped:
                kept.append(rows.persist())
            if regrouped:
                # Here each partition is a slot, whatever later steps make of it.
                discard(rows, self._epoch)
            return rows

        try:
            frames = evaluate(self._lane.nodes, given, operate, keep)
            for node, sink in sinks:
                sink(frames[node], self._epoch)
            self._run_missing(frames, wanted)
            if missing := _missing(self._board.take(self._epoch), wanted):
                self._run_punctuation(given, missing, sinks)
        finally:
            for rows in kept:
                rows.unpersist()
        statuses = self._board.take(self._epoch)
        if missing := _missing(statuses, wanted):
            raise TetherError(
                f"Slots {sorted(missing)} did not run epoch {self._epoch}.",
                why="Spark finished the job without running their tasks.",
                do="Please report it with the query's plan.",
            )
        return statuses

    def _run_missing(
        self, frames: Mapping[Node, DataFrame], nodes: Sequence[OperatorNode], turn: int = 0
    ) -> None:
        """Run operators with slots that have not reported; the last first, as it runs those before.

        Args:
            frames: Rows of all nodes.
            nodes: The operators.
            turn: Reports of earlier turns do not count.
        """
        for node in reversed(nodes):
            reports = self._board.take(self._epoch)
            if _missing({slot: s for slot, s in reports.items() if s.turn >= turn}, [node]):
                discard(frames[node], self._epoch)

    def _run_punctuation(
        self,
        given: Mapping[Node, DataFrame],
        missing: set[SlotId],
        sinks: Sequence[tuple[Node, Sink]],
    ) -> None:
        """End the epoch for slots whose tasks Spark left out because they have no rows."""
        idle = {name for name, _ in missing}
        turn = self._begin_turn()  # slots after them may get additional rows

        def operate(node: OperatorNode, rows: DataFrame) -> DataFrame:
            fed_by_operator = any(
                isinstance(before, OperatorNode) and before in self._lane.operators
                for before in self._lane.flow.upstream(node.parents)
            )
            if fed_by_operator or node.name not in idle:
                return self._task(node, self._placed.rows_by_slot(node, rows))
            return self._task(node, self._placed.punctuation(node))

        frames = evaluate(self._lane.nodes, given, operate)
        for node, sink in sinks:
            if isinstance(node, OperatorNode) and node.name in idle:
                sink(frames[node], self._epoch)
        idlers = [node for node in self._lane.operators if node.name in idle]
        self._run_missing(frames, idlers, turn)

    def _may_be_regrouped(self, node: Node) -> bool:
        """Whether anything but our own shuffle may merge the node's partitions."""
        if not isinstance(node, OperatorNode):
            return False
        steps = [n for n in self._lane.nodes if isinstance(n, StepNode) and node in n.parents]
        if any(step.regroups for step in steps):
            return True
        return self._safe and (bool(steps) or any(end is node for end, _ in self._lane.sinks))

    def _consumers(self, node: Node) -> int:
        children = sum(child.parents.count(node) for child in self._lane.nodes)
        return children + sum(end is node for end, _ in self._lane.sinks)


def _missing(statuses: Mapping[SlotId, SlotStatus], nodes: Iterable[OperatorNode]) -> set[SlotId]:
    """Slots of some operators that have not reported."""
    return {SlotId(node.name, slot) for node in nodes for slot in each_slot(node.slots)} - set(
        statuses
    )
