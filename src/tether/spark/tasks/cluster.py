"""Spark as the engine's cluster: slots are partitions, an epoch is one job or a few."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from tether.core.ids import Epoch
from tether.engine.ports import BrokenOffError
from tether.spark.graph.plan import plan_of
from tether.spark.places.held_back import HeldBackError
from tether.spark.places.placed import Placed, Seating
from tether.spark.places.spreading import Spreading, live_executors
from tether.spark.sinks import discard
from tether.spark.tasks.jobs import EpochJobs
from tether.spark.tasks.mapping import ArrowMaps
from tether.spark.tasks.statuses import StatusBoard
from tether.spark.tasks.task import SlotTask

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from tether.engine.messages import Purpose
    from tether.engine.ports import Orders, Reports, Statuses
    from tether.protocols.copies import Seats
    from tether.spark.graph.flow import Node, OperatorNode
    from tether.spark.graph.plan import SlotRows
    from tether.spark.sinks import Sink
    from tether.spark.tasks.jobs import LaneGraph


class SparkCluster:
    """Runs the slots of one lane; see :class:`tether.engine.ports.Cluster`.

    Args:
        lane: The nodes to run.
        reports: Is told when an epoch's jobs were started again.
        session: Spark's session for the stream's epochs.
        strict: Whether copies that cannot be kept apart at the start are an error. Later, and for a
            twin, any seat is accepted.
    """

    def __init__(
        self,
        lane: LaneGraph,
        reports: Reports,
        session: SparkSession,
        *,
        strict: bool = True,
    ) -> None:
        self._strict = strict
        self._lane, self._reports, self.session = lane, reports, session
        self._board = StatusBoard(session.sparkContext)
        self._maps = ArrowMaps(session)
        self._spreading = Spreading()
        self._placed: Placed | None = None
        self._executors: frozenset[str] = frozenset()
        """Executors that were alive at the last check."""
        self._placed_on = 0
        """Number of executors when the slots were placed."""
        self._turn = 0
        """Number of times that slots were given an epoch to run, retries included."""
        self._shares: SparkCluster | None = None
        """The cluster that has placed the slots, if it is not this one."""
        self._name = uuid.uuid4().hex
        """Name of our placement, in every session; another run of the query has another name."""
        self.copied = dict(lane.copies.copied) if lane.copies is not None else {}
        """Slots that have a copy, by operator."""
        self._safe = False
        """Whether no partitioning is relied on but that of our own shuffle and our own jobs."""
        self._fold = True
        """Whether rows may be folded where they are read."""
        self._told = ""
        """The last reported reason why Spark read an epoch that could have been folded."""

    def copy_like(self, other: SparkCluster) -> None:
        """Let the same slots have copies as on another cluster of the query."""
        self.copied = dict(other.copied)

    def beside(self, sinks: Sequence[tuple[Node, Sink]]) -> SparkCluster:
        """The same slots in the same places, for runs whose rows go to other sinks."""
        other = SparkCluster(replace(self._lane, sinks=sinks), self._reports, self.session)
        other._shares = self
        return other

    def renew(self, session: SparkSession) -> None:
        """Use another session from the next placement on, because Spark has started the stream again."""
        self.session, self._maps = session, ArrowMaps(session)

    def place(self, *, stay: bool = False) -> None:
        """Plan epochs for the session; with ``stay``, slots remain on their executors."""
        before = self._placed
        if before is not None:
            before.release(stay=stay)
        self._place(stay_as=before if stay else None)

    def _place(self, stay_as: Placed | None = None) -> Placed:
        lane = self._lane
        seating = None
        if lane.copies is not None:
            seating = Seating(self.copied, lane.copies, strict=self._strict)
            self._strict = False
        if stay_as is None:
            self._name = uuid.uuid4().hex
        self._placed = Placed(
            self.session,
            lane.flow,
            lane.operators,
            self._name,
            safe=self._safe,
            fold=self._fold,
            seating=seating,
            stay_as=None if stay_as is None else stay_as.seats,
        )
        self._placed_on = self.executors()
        return self._placed

    @property
    def _places(self) -> Placed:
        if self._shares is not None:
            return self._shares._places
        return self._placed or self._place()

    def release(self) -> None:
        """Forget where slots were placed."""
        if self._placed is not None:
            self._placed.release()

    def seats(self) -> Mapping[str, Seats]:
        """The seats of operators that have copies."""
        return self._places.seats

    def reseat(self, operator: str, seats: Seats) -> None:
        """Let rows of an operator go to other seats from now on."""
        self._places.reseat(operator, seats)
        self.copied[operator] = tuple(sorted(seats.runs[seat] for seat in seats.copies))

    def executors(self) -> int:
        """Number of executors."""
        if not self._places.pinned:  # on the stand-in for Spark
            own = getattr(self.session, "tether_executors", None)
            return 1 if own is None else int(own())
        return len(live_executors(self.session.sparkContext)) - 1  # one of them is the driver

    def lacks_executors(self) -> bool:
        """Whether there are fewer than when slots were placed: some have died."""
        return self._places.pinned and self.executors() < self._placed_on

    def lopsided(self, places: Iterable[list[str]]) -> bool:
        """Whether executors have joined that could take slots off others."""
        if not self._places.pinned:
            return False
        return self._spreading.wanted(self.executors(), places)

    def shaken(self) -> bool:
        """Whether executors have died since this was last asked."""
        if not self._places.pinned:
            return False
        before, self._executors = self._executors, live_executors(self.session.sparkContext)
        return bool(before - self._executors)

    def slots_of(self, operator: str, keys: pa.RecordBatch, slots: int) -> NDArray[np.int64]:
        """The slot of each of some keys, by Spark's own hash of the types that rows have."""
        node = next(node for node in self._lane.operators if node.name == operator)
        types = self._lane.operators[node].key_types
        plan = plan_of(self.session)(list(types), slots, None, None)
        found: NDArray[np.int64] = plan.slots_of(self.session, keys, types)
        return found

    def forget_reports(self) -> None:
        """Drop reports so far."""
        self._board.forget()

    # ---- epochs --------------------------------------------------------------------------------

    def run(
        self,
        orders: Orders,
        epoch: Epoch,
        given: Mapping[Node, DataFrame],
        only: Collection[str] | None = None,
    ) -> Statuses:
        """Run every slot of an epoch, through the sinks where they take the rows."""
        while True:
            jobs = EpochJobs(
                self._lane,
                self._places,
                self._board,
                epoch,
                safe=self._safe,
                task=lambda node, rows: self._task(orders, node, rows, epoch),
                begin_turn=self._begin_turn,
            )
            try:
                with self._places.watched():
                    statuses = jobs.run(given, only)
                self._tell_reading(epoch)
                return statuses
            except HeldBackError as error:
                if self._places.hasty:
                    raise BrokenOffError from error
                self._reports.add("resent", "an executor died, its tasks were held back", epoch)
            except Exception as error:
                # Spark turns exceptions of tasks into text, so only the text can be examined.
                text = str(error)
                if "CannotFoldError" in text and self._places.unfold():
                    self._fold = False
                    self._reports.add("replanned", "a file could not be folded by Arrow", epoch)
                elif "MisplacedRowsError" in text and not self._safe:
                    self._safe = True
                    self._places.unfuse()
                    self._reports.add("replanned", "Spark's partitions were not the slots", epoch)
                else:
                    raise

    @property
    def rows_read(self) -> int:
        """Rows of the newest epoch that were folded where they were read."""
        return max((one.rows_read for one in self._places.read_by_us()), default=0)

    def _tell_reading(self, epoch: Epoch) -> None:
        """Report once when Spark has to read an epoch itself."""
        why = next((one.why_not for one in self._places.read_by_us() if one.why_not), "")
        if why and why != self._told:
            self._reports.add("replanned", f"Spark reads the files itself: {why}", epoch)
        self._told = why

    def _begin_turn(self) -> int:
        self._turn += 1
        return self._turn

    def _task(
        self,
        orders: Orders,
        node: OperatorNode,
        rows: SlotRows,
        epoch: Epoch,
        purpose: Purpose = "epoch",
    ) -> DataFrame:
        program = orders.program(node.name, epoch, self._turn, purpose)
        task = SlotTask(program, self._board, rows.parcels)
        schema = self._lane.operators[node].output_spark
        if self._places.pinned:  # the shorter way is not tested with several executors
            return rows.frame.mapInArrow(task, schema)
        return self._maps.mapped(rows.frame, task, schema)

    # ---- between epochs ------------------------------------------------------------------------

    def ask(self, orders: Orders, purpose: Purpose, epoch: Epoch) -> Statuses:
        """Run a task without rows in every slot; give the reports of those that made one."""
        self._board.forget()
        for node in self._lane.operators:
            rows = self._places.punctuation(node)
            discard(self._task(orders, node, rows, epoch, purpose), epoch)
        return self._board.take(epoch)

    def clean(self, orders: Orders, epoch: Epoch) -> None:
        """Remove the arenas."""
        for node in self._lane.operators:
            with contextlib.suppress(Exception):  # best effort: the executors may be gone
                rows = self._places.punctuation(node)
                discard(self._task(orders, node, rows, epoch, "clean"), Epoch(0))

    def table(self, orders: Orders, node: OperatorNode, name: str, epoch: Epoch) -> DataFrame:
        """The rows of one of an operator's tables, as of a committed epoch."""
        schema = self._lane.operators[node].table_schema(name)
        program = orders.program(node.name, epoch, self._turn, "read", name)
        program = replace(program, output_schema=schema)
        rows = self._places.punctuation(node).frame
        return rows.mapInArrow(SlotTask(program, self._board), from_arrow_schema(schema))
