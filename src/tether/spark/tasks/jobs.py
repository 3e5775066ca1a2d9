"""An epoch's Spark jobs: rows to slots, slots to sinks, and no slot left out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tether.core.errors import TetherError
from tether.spark.graph.flow import Node, OperatorNode, StepNode, evaluate
from tether.spark.graph.plan import SLOT, plan_of
from tether.spark.places.held_back import HeldBack, HeldBackError
from tether.spark.places.pinning import Anchor, has_one_executor
from tether.spark.places.spreading import Spreading, live_executors
from tether.spark.session import tune_epochs
from tether.spark.sinks import discard
from tether.spark.tasks.statuses import SlotId, StatusBoard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tether.engine.messages import SlotStatus
    from tether.engine.query.ledger import Ledger
    from tether.observe.story import Story
    from tether.spark.graph.flow import Flow
    from tether.spark.graph.plan import EpochPlan
    from tether.spark.graph.prepared import PreparedOperator
    from tether.spark.sinks import Sink

Task = Callable[["OperatorNode", "DataFrame", int], "DataFrame"]


class SlotJobs:
    """Runs the slots of some operators, in whatever session Spark's stream has.

    Args:
        flow: The whole graph.
        nodes: The nodes to run, parents first.
        operators: The operators among them.
        sinks: Ends of the nodes.
        story: Is told when an epoch's jobs were begun anew.
        task: Makes an operator's output from its rows, each in the partition of its slot.
    """

    def __init__(
        self,
        flow: Flow,
        nodes: Sequence[Node],
        operators: Mapping[OperatorNode, PreparedOperator],
        sinks: Sequence[tuple[Node, Sink]],
        *,
        story: Story,
        task: Task,
    ) -> None:
        self._flow, self._nodes, self.operators = flow, nodes, operators
        self._sinks, self._story, self._task = sinks, story, task
        self.turn = 0
        """How often slots were given an epoch to run, retries of one included."""
        self.session: SparkSession | None = None
        """Whose epochs these are, once they are placed."""
        self._plans: dict[OperatorNode, EpochPlan] = {}
        self._anchors: dict[int, Anchor] = {}
        self._spreading = Spreading()
        self._held_back: HeldBack | None = None
        self.board: StatusBoard | None = None
        self.safe = False
        """Whether no partitioning is relied on but that of our own shuffle and our own jobs."""

    def place(self, session: SparkSession, *, stay: bool = False) -> None:
        """Plan epochs for a session of Spark's: the first, or that of a stream begun anew.

        Args:
            session: The session.
            stay: Whether slots stay where they are.
        """
        if stay:
            # Anchors of the new session are found to be cached already, and where they are.
            self._anchors = {}
        self.release()
        if self.board is None:
            self.board = StatusBoard(session.sparkContext)
        operators = list(self.operators.values())
        # One shuffle can serve groupBy and slots only in operators of the session's own number.
        combining = [p.slots for p in operators if p.combine is not None]
        fused = combining[0] if combining else operators[0].slots
        tune_epochs(session, fused, narrow=all(p.narrow for p in operators))
        for node, prepared in self.operators.items():
            anchor = None if has_one_executor(session) else self._anchor(session, node.slots)
            before = self._flow.upstream(node.parents)
            plan = plan_of(session)(
                node.key,
                node.slots,
                prepared.combine,
                anchor,
                node.event_time,
                from_source=not any(isinstance(one, OperatorNode) for one in before),
            )
            if self.safe or (prepared.combine is not None and node.slots != fused):
                plan.unfuse()
            self._plans[node] = plan
        self.session = session
        if self._anchors:
            self._held_back = HeldBack(session)

    def lopsided(self, ledgers: Iterable[Ledger]) -> bool:
        """Whether executors have joined that could take slots off others."""
        if not self._anchors or self.session is None:
            return False
        places = [ledger.places() for ledger in ledgers]
        executors = live_executors(self.session.sparkContext)
        return self._spreading.wanted(len(executors) - 1, places)  # one of them is the driver

    def _anchor(self, session: SparkSession, slots: int) -> Anchor:
        if slots not in self._anchors:
            self._anchors[slots] = Anchor(session, slots)
        return self._anchors[slots]

    def _place_safely(self) -> None:
        """From now on, rely on no partitioning but that of our own shuffle and our own jobs."""
        self.safe = True
        for plan in self._plans.values():
            plan.unfuse()

    def run(
        self, given: Mapping[Node, DataFrame], epoch: int, only: Collection[str] | None = None
    ) -> dict[SlotId, SlotStatus]:
        """Run every slot of an epoch, through the sinks where they take the rows; give the reports.

        Args:
            given: Rows of sources, and of nodes of another part.
            epoch: Number of the epoch.
            only: Operators to run, without any sink; all by default.
        """
        while True:
            try:
                with self._held_back.watched() if self._held_back else nullcontext():
                    return self._run(given, epoch, only)
            except HeldBackError:
                self._story.add("resent", "an executor died, its tasks were held back", epoch)
            except Exception as error:
                # Spark flattens exceptions of tasks to text, so the text is all there is to go by.
                if "MisplacedRowsError" not in str(error) or self.safe:
                    raise
                self._place_safely()
                self._story.add("replanned", "Spark's partitions were not the slots", epoch)

    def _run(
        self, given: Mapping[Node, DataFrame], epoch: int, only: Collection[str] | None
    ) -> dict[SlotId, SlotStatus]:
        assert self.board is not None
        self.turn += 1
        kept: list[DataFrame] = []
        sinks = self._sinks if only is None else []
        wanted = [node for node in self.operators if only is None or node.name in only]

        def operate(node: OperatorNode, rows: DataFrame) -> DataFrame:
            return self._task(node, self._plans[node].rows_by_slot(rows), epoch)

        def keep(node: Node, rows: DataFrame) -> DataFrame:
            regrouped = self._may_be_regrouped(node)
            if self._consumers(node) > 1 or regrouped:
                kept.append(rows.persist())
            if regrouped:
                discard(rows, epoch)  # here each partition is a slot, whatever is made of it later
            return rows

        try:
            frames = evaluate(self._nodes, given, operate, keep)
            for node, sink in sinks:
                sink(frames[node], epoch)
            self._run_missing(frames, epoch, wanted)
            if missing := _missing(self.board.take(epoch), wanted):
                self._run_punctuation(given, epoch, missing, sinks)
        finally:
            for rows in kept:
                rows.unpersist()
        statuses = self.board.take(epoch)
        if missing := _missing(statuses, wanted):
            raise TetherError(
                f"Slots {sorted(missing)} did not run epoch {epoch}.",
                why="Spark finished the job without running their tasks.",
                do="Please report it with the query's plan.",
            )
        return statuses

    def _run_missing(
        self,
        frames: Mapping[Node, DataFrame],
        epoch: int,
        nodes: Sequence[OperatorNode],
        turn: int = 0,
    ) -> None:
        """Run operators of which some slot has not reported: the last first, it runs those before.

        Args:
            frames: Rows of all nodes.
            epoch: Number of the epoch.
            nodes: The operators.
            turn: Reports of earlier turns do not count.
        """
        assert self.board is not None
        for node in reversed(nodes):
            reports = self.board.take(epoch)
            if _missing({slot: s for slot, s in reports.items() if s.turn >= turn}, [node]):
                discard(frames[node], epoch)

    def _run_punctuation(
        self,
        given: Mapping[Node, DataFrame],
        epoch: int,
        missing: set[SlotId],
        sinks: Sequence[tuple[Node, Sink]],
    ) -> None:
        """End the epoch for slots whose tasks Spark left out, seeing that there are no rows."""
        idle = {name for name, _ in missing}
        self.turn += 1  # slots behind them may get rows that they did not get before

        def operate(node: OperatorNode, rows: DataFrame) -> DataFrame:
            fed_by_operator = any(
                isinstance(before, OperatorNode) and before in self.operators
                for before in self._flow.upstream(node.parents)
            )
            if fed_by_operator or node.name not in idle:
                return self._task(node, self._plans[node].rows_by_slot(rows), epoch)
            return self._task(node, self.punctuation(node), epoch)

        frames = evaluate(self._nodes, given, operate)
        for node, sink in sinks:
            if isinstance(node, OperatorNode) and node.name in idle:
                sink(frames[node], epoch)
        idlers = [node for node in self.operators if node.name in idle]
        self._run_missing(frames, epoch, idlers, self.turn)

    def _may_be_regrouped(self, node: Node) -> bool:
        """Whether others than our own shuffle may put the node's partitions together."""
        if not isinstance(node, OperatorNode):
            return False
        steps = [n for n in self._nodes if isinstance(n, StepNode) and node in n.parents]
        if any(step.regroups for step in steps):
            return True
        return self.safe and (bool(steps) or any(end is node for end, _ in self._sinks))

    def _consumers(self, node: Node) -> int:
        children = sum(child.parents.count(node) for child in self._nodes)
        return children + sum(end is node for end, _ in self._sinks)

    def punctuation(self, node: OperatorNode) -> DataFrame:
        """A row for each slot that says only that the epoch is over."""
        assert self.session is not None
        rows = (
            self.session.range(0, node.slots, 1, 1)
            .selectExpr(f"CAST(id AS INT) AS {SLOT}")
            .repartitionById(node.slots, SLOT)
        )
        anchor = self._anchors.get(node.slots)
        return rows if anchor is None else anchor.pin(rows)

    def release(self) -> None:
        """Forget where slots were placed."""
        if self._held_back is not None:
            self._held_back.end()
            self._held_back = None
        for anchor in self._anchors.values():
            anchor.release()
        self._anchors.clear()


def _missing(statuses: Mapping[SlotId, SlotStatus], nodes: Iterable[OperatorNode]) -> set[SlotId]:
    """Slots of some operators that have not reported."""
    return {(node.name, slot) for node in nodes for slot in range(node.slots)} - set(statuses)
