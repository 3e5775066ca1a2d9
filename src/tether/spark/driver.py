"""The driver's side of an epoch: what ``foreachBatch`` calls.

Numbered as it runs, with what a crash right after each step means:

1. The control is packed. (Crash: nothing has happened; Spark runs the epoch again.)
2. The sink's actions run the slots. (Crash: slots that finished find this epoch applied when it is run
   again, roll it back and apply it once more.)
3. Slots that no action ran are run now: a sink may take only part of its rows, or none.
4. If any slot wrote a frame or recovered, a commit record names those frames, durably. (Crash: the
   record speaks of an epoch that is run again; the new run's record replaces it.)
5. Frames that nothing can need any more are dropped, and Spark commits the epoch.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.pandas.types import from_arrow_schema

from tether.backup.commits import CommitRecord, SlotCommit
from tether.backup.history import CommitHistory
from tether.backup.names import slot_key
from tether.backup.sweeping import sweep
from tether.core.errors import BadValueError, TetherError
from tether.spark.control import GENESIS, Purpose, SlotControl
from tether.spark.ledger import Ledger
from tether.spark.pinning import Anchor, has_one_executor
from tether.spark.plan import SLOT, EpochPlan
from tether.spark.program import Program
from tether.spark.session import tune_epochs
from tether.spark.sinks import discard
from tether.spark.statuses import StatusBoard
from tether.spark.story import Story
from tether.spark.task import SlotTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tether.backup.protocol import BackupStore
    from tether.spark.control import SlotStatus
    from tether.spark.prepared import Prepared

STOP_SECONDS = 60.0
"""How long the end of a query waits for an epoch that is still at work."""

DROP_EVERY = 16
"""Epochs with backups between two clean-ups of the backup store."""


class EpochDriver:
    """Runs epochs of one prepared query; an instance is the function given to ``foreachBatch``.

    Args:
        prepared: The query, checked and ready.
        store: The backup store, locked by this query; None where the policy keeps no backups.
        checkpoint: Spark's checkpoint directory.
    """

    def __init__(self, prepared: Prepared, store: BackupStore | None, checkpoint: str) -> None:
        self.prepared, self.store, self._checkpoint = prepared, store, checkpoint
        self.run_id = uuid.uuid4().hex
        self.story = Story()
        self.ledger = Ledger(
            prepared.operator.name, prepared.slots, prepared.policy, prepared.placement
        )
        self.committed_epoch = -1
        self.failure: BaseException | None = None
        self._session: SparkSession | None = None
        self._board: StatusBoard | None = None
        self._plan: EpochPlan | None = None
        self._anchor: Anchor | None = None
        self._query_id = ""
        self._first_epoch = 0
        self._lineages: dict[int, str] | None = None
        self._history = CommitHistory()
        self._records_since_drop = 0
        self._started = threading.Event()
        self._running = threading.Lock()

    def identify(self, query_id: str) -> None:
        """Spark has named the query: epochs may begin."""
        self._query_id = query_id
        self._started.set()

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Run one epoch to the point where Spark may commit it."""
        with self._running:
            try:
                self._run(rows, epoch)
            except BaseException as error:
                self.failure = error
                raise

    def _run(self, rows: DataFrame, epoch: int) -> None:
        if self._session is None:
            self._open(rows.sparkSession, epoch)
        assert self._plan is not None
        try:
            statuses = self._run_slots(self._output(self._plan.rows_by_slot(rows), epoch), epoch)
        except Exception as error:
            # Spark flattens exceptions of tasks to text, so the text is all there is to go by.
            if "MisplacedRowsError" not in str(error) or not self._plan.unfuse():
                raise
            self.story.add("replanned", "Spark left the shuffle by key out", epoch)
            statuses = self._run_slots(self._output(self._plan.rows_by_slot(rows), epoch), epoch)
        self._commit(epoch, statuses)

    # ---- 1. control ----------------------------------------------------------------------------

    def _open(self, session: SparkSession, epoch: int) -> None:
        self._started.wait(60)
        prepared = self.prepared
        self._first_epoch = prepared.bind(self._query_id, epoch, self.store)
        if self.store is not None:
            self._history = self.store.read_commits().history
            sweep(self.store, self._history, epoch - 1, orphans=True)
            self.ledger.resume(self._history, epoch)
            self._lineages = self._stored_lineages(epoch)
        elif epoch == self._first_epoch:
            self._lineages = {}
        tune_epochs(session, prepared.slots)
        self._anchor = None if has_one_executor(session) else Anchor(session, prepared.slots)
        self._plan = EpochPlan(prepared.key, prepared.slots, prepared.combine(), self._anchor)
        self._board = StatusBoard(session.sparkContext)
        self.committed_epoch = epoch - 1
        self.story.add("started", "query started", epoch, run=self.run_id)
        self._session = session

    def _stored_lineages(self, epoch: int) -> dict[int, str]:
        name = self.prepared.operator.name
        facts = {
            slot: self._history.slot_facts(name, slot, epoch) for slot in range(self.prepared.slots)
        }
        return {slot: fact.lineage for slot, fact in facts.items() if fact.lineage}

    def _control(self, epoch: int, purpose: Purpose, table: str) -> SlotControl:
        prepared = self.prepared
        return SlotControl(
            query=self._query_id,
            run=self.run_id,
            operator=prepared.operator.name,
            slots=prepared.slots,
            epoch=epoch,
            first_epoch=self._first_epoch,
            fingerprint=prepared.digest,
            lineages=self._lineages,
            purpose=purpose,
            read_table=table,
            arena_scope=prepared.arena_scope,
            arena_dir=prepared.arena_dir,
        )

    # ---- 2. and 3. slots -----------------------------------------------------------------------

    def _output(
        self, by_slot: DataFrame, epoch: int, purpose: Purpose = "epoch", table: str = ""
    ) -> DataFrame:
        prepared = self.prepared
        schema = prepared.table_schema(table) if table else prepared.output_arrow
        program = Program(
            control=self._control(epoch, purpose, table),
            operator=prepared.operator_blob,
            policy=prepared.policy,
            placement=prepared.placement,
            store=prepared.store_address,
            output_schema=schema,
            faults=prepared.faults,
        )
        assert self._board is not None
        rows = from_arrow_schema(schema) if table else prepared.output_spark
        return by_slot.mapInArrow(SlotTask(program, self._board), rows)

    def _run_slots(self, output: DataFrame, epoch: int) -> dict[int, SlotStatus]:
        assert self._board is not None
        self.prepared.sink(output, epoch)
        statuses = self._board.take(epoch)
        if len(statuses) < self.prepared.slots:
            discard(output, epoch)
            statuses = self._board.take(epoch)
        if len(statuses) < self.prepared.slots:
            # Spark's optimiser can see that an epoch has no rows, and then runs no task at all.
            discard(self._output(self._punctuation(), epoch), epoch)
            statuses = self._board.take(epoch)
        missing = sorted(set(range(self.prepared.slots)) - set(statuses))
        if missing:
            raise TetherError(
                f"Slots {missing} did not run epoch {epoch}.",
                why="Spark finished the job without running their tasks.",
                do="Please report it with the query's plan.",
            )
        return statuses

    def _punctuation(self) -> DataFrame:
        """A row for each slot that says only that the epoch is over."""
        assert self._session is not None
        assert self._plan is not None
        slots = self.prepared.slots
        rows = (
            self._session.range(0, slots, 1, 1)
            .selectExpr(f"CAST(id AS INT) AS {SLOT}")
            .repartitionById(slots, SLOT)
        )
        return rows if self._anchor is None else self._anchor.pin(rows)

    # ---- 4. and 5. commit ----------------------------------------------------------------------

    def _commit(self, epoch: int, statuses: dict[int, SlotStatus], *, amends: bool = False) -> None:
        entries = {
            slot_key(status.operator, slot): slot_commit(status)
            for slot, status in statuses.items()
            if amends or status.frame is not None or status.recovery is not None
        }
        # An epoch that was committed before and is run again needs a record even if it wrote nothing
        # this time: what the first run wrote counts no more.
        known = self._history.last_epoch
        rerun = known is not None and known >= epoch and not amends
        if self.store is not None and (entries or rerun):
            record = CommitRecord(epoch=epoch, run=self.run_id, slots=entries, amends=amends)
            self.store.append_commit(record)
            self._history.apply(record)
            self._drop_unneeded(epoch - 1)  # Spark has committed that one, for it began this one
        if self._lineages is not None:
            changed = {s: status.lineage for s, status in statuses.items()}
            self._lineages |= {s: name for s, name in changed.items() if name != GENESIS}
        self.story.add_epoch(statuses.values())
        self.ledger.note(statuses)
        self.committed_epoch = epoch

    def _drop_unneeded(self, spark_committed: int) -> None:
        self._records_since_drop += 1
        if self.store is None or self._records_since_drop < DROP_EVERY:
            return
        self._records_since_drop = 0
        sweep(self.store, self._history, spark_committed)

    def read_table(self, name: str) -> DataFrame:
        """A table of the resident state, as of the last committed epoch."""
        if self._session is None:
            raise BadValueError(
                f"The table {name!r} cannot be read yet.",
                why="No epoch has run.",
                do="Wait for the first epoch, for example with processAllAvailable().",
            )
        return self._output(self._punctuation(), self.committed_epoch, "read", name)

    # ---- the end -------------------------------------------------------------------------------

    def end(self, *, flush: bool) -> None:
        """No epoch runs any more: make durable what is not, and remove the arenas."""
        # Spark's stop() does not wait for a foreachBatch function that is still at work in Python.
        waited = self._running.acquire(timeout=STOP_SECONDS)
        try:
            self._end(flush=flush and waited)
        finally:
            if waited:
                self._running.release()

    def _end(self, *, flush: bool) -> None:
        if self._session is None:
            return
        if flush and self.store is not None:
            self._flush()
        if flush or self.store is None:
            # After an error the arenas stay: with them a restart loses nothing.
            with contextlib.suppress(Exception):  # best effort: the executors may be gone
                discard(self._output(self._punctuation(), self.committed_epoch, "clean"), 0)
        if self._anchor is not None:
            self._anchor.release()
        self.story.add("stopped", "query stopped", self.committed_epoch, flushed=flush)

    def _flush(self) -> None:
        # An epoch that Spark did not commit is run again: what is made durable must be without it.
        epoch = self.committed_epoch
        if not self._spark_committed(epoch):
            epoch -= 1
        if epoch < self._first_epoch:
            return
        assert self._board is not None
        self._board.forget()
        discard(self._output(self._punctuation(), epoch, "flush"), epoch)
        self._commit(epoch, self._board.take(epoch), amends=True)

    def _spark_committed(self, epoch: int) -> bool:
        """Whether Spark's own commit log, wherever it is, has the epoch."""
        assert self._session is not None
        try:
            self._session.read.text(f"{self._checkpoint}/commits/{epoch}").collect()
        except AnalysisException:
            return False
        return True


def slot_commit(status: SlotStatus) -> SlotCommit:
    """What a commit record says of a slot."""
    frame = status.frame
    return SlotCommit(
        epoch=status.epoch,
        frame=frame.ref if frame else None,
        kind=frame.kind if frame else None,
        carried=frame.carried if frame else 0.0,
        divergence_after=status.divergence,
        exact=status.exact,
        failures=status.failures,
        lineage=status.lineage,
        policy_state=status.policy_state,
    )
