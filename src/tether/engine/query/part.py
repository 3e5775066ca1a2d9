"""Operators that run at one pace: their epochs, numbered as they run, their backups, their commits.

A query is one part, or two where a feedback loop may drift apart (see ``consistency``). What a crash
right after each step means:

1. The control is packed. (Crash: nothing has happened; the epoch is run again.)
2. The sinks' actions run the slots of all operators. (Crash: slots that finished find this epoch
   applied when it is run again, roll it back and apply it once more.)
3. Slots that no action ran are run now: a sink may take only part of its rows, or none.
4. If any slot wrote a frame or recovered, a commit record names those frames, durably. (Crash: the
   record speaks of an epoch that is run again; the new run's record replaces it.)
5. Frames that nothing can need any more are dropped.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from tether.backup.audit import Expected
from tether.backup.commits import CommitRecord
from tether.backup.history import CommitHistory
from tether.backup.names import slot_key
from tether.backup.sweeping import sweep
from tether.chaos.faults import reach
from tether.core.graph import SlotId
from tether.engine.event_time import advance
from tether.engine.messages import GENESIS, Purpose, SlotControl, SnapshotBarrier, StreamClock
from tether.engine.query.binding import bind_store
from tether.engine.query.commit_entries import (
    InForce,
    clock_commit,
    clock_has_news,
    clock_name,
    has_news,
    in_force,
    keeps_clock,
    slim,
    slot_commit,
    stored_clock,
    stored_lineages,
)
from tether.engine.query.ledger import Ledger
from tether.engine.query.log_opening import leaves_every_epoch, open_log
from tether.engine.query.snapshot_content import clocks_in, content
from tether.engine.query.snapshot_keeper import keeper_for
from tether.engine.slot.program import Program
from tether.spark.graph.flow import Node, OperatorNode
from tether.spark.tasks.jobs import SlotJobs
from tether.spark.tasks.requests import SlotRequests
from tether.spark.tasks.task import SlotTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tether.backup.commitcodec import LogEnd
    from tether.backup.commitlog import CommitLog
    from tether.backup.mark import LogMark
    from tether.backup.opening import StoreAddress
    from tether.backup.protocol import BackupStore
    from tether.core.losses import LossRecord
    from tether.engine.messages import SlotStatus
    from tether.engine.query.catching_up import CatchUp
    from tether.engine.query.feedback_box import FeedbackBox
    from tether.engine.query.log_opening import OpenedLog
    from tether.engine.query.snapshot_keeper import Held
    from tether.observe.story import Story
    from tether.spark.graph.prepared import PreparedOperator, PreparedQuery
    from tether.spark.sinks import Sink

DROP_EVERY = 16
"""Epochs with backups between two clean-ups of the backup store."""


class Part:
    """Runs epochs of some operators of a prepared query.

    Args:
        query: The query, checked and ready.
        nodes: The part's nodes, parents first; rows of their other parents are given to ``run``.
        sinks: Ends of the part.
        store: Its backup store, locked by this query; None where nothing is backed up.
        address: How slots reach that store.
        run_id: Id of this driver's run.
        story: The query's account of itself.
        feedback: Where feedback items wait for their receivers.
        marks: Where the end of its commit log may be told besides, the better place first.
        records_all: Whether every epoch leaves a commit record, so that a restart knows how far
            this part has come.
    """

    def __init__(
        self,
        query: PreparedQuery,
        nodes: Sequence[Node],
        sinks: Sequence[tuple[Node, Sink]],
        *,
        store: BackupStore | None,
        address: StoreAddress | None,
        run_id: str,
        story: Story,
        feedback: FeedbackBox,
        marks: Sequence[LogMark] = (),
        records_all: bool = False,
    ) -> None:
        self._query = query
        self._store, self._address, self._run_id, self._story = store, address, run_id, story
        self._feedback, self._records_all = feedback, records_all
        self.operators: dict[OperatorNode, PreparedOperator] = {
            node: query.operators[node] for node in nodes if isinstance(node, OperatorNode)
        }
        self.ledgers = {
            node.name: Ledger(node.name, node.slots, p.policy, p.placement, p.window)
            for node, p in self.operators.items()
        }
        self.first_epoch = 0
        self.committed_epoch = -1
        self._jobs = SlotJobs(
            query.flow, nodes, self.operators, sinks, story=story, task=self._task
        )
        self._requests = SlotRequests(self._jobs, self._task)
        self._query_id = ""
        self._lineages: dict[str, dict[int, str]] | None = None
        self._clocks = {node.name: StreamClock() for node in self.operators}
        self._history = CommitHistory()
        self._marks = marks
        self._log_end: LogEnd | None = None
        policies = [prepared.policy for prepared in self.operators.values()]
        self._every_epoch = records_all or leaves_every_epoch(policies)
        self._recorded: dict[str, dict[int, InForce]] = {node.name: {} for node in self.operators}
        """What the log says of the price of losing each slot."""
        self._records_since_drop = 0
        self._keeper = keeper_for(self.operators.values(), story, query.readable_epochs)
        self._snapshot: SnapshotBarrier | None = None
        """The barrier that ends the epoch in hand, if one does."""
        self.catch_up: CatchUp | None = None
        """Slots that are behind the others, and run epochs once more that those have applied."""

    def open(self, session: SparkSession, query_id: str, epoch: int) -> None:
        """Make ready for the first epoch of this run, and take over what is in the store."""
        self._query_id = query_id
        operators = list(self.operators.values())
        self.first_epoch = bind_store(
            operators, query_id, epoch, self._store, self._query.allow_changed
        )
        self.committed_epoch = epoch - 1
        if self._store is not None:
            log = self._store.read_commits()
            self._history = log.history
            if self._records_all and self._history.last_epoch is not None:
                self.committed_epoch = min(epoch - 1, self._history.last_epoch)
            elif self._records_all:
                self.committed_epoch = self.first_epoch - 1
            opened = self._open_log(self._store, log, epoch)
            found = opened.frames
            sweep(self._store, self._history, self.committed_epoch, orphans=True, found=found)
            if self.committed_epoch >= self.first_epoch:
                for ledger in self.ledgers.values():
                    ledger.resume(self._history, self.committed_epoch + 1)
            self._lineages = {
                node.name: stored_lineages(self._history, node, self.committed_epoch + 1)
                for node in self.operators
            }
            if opened.short and self._keeper is not None:
                self._distrust_all()
            self._resume(self._store, self.committed_epoch, short=opened.short)
        elif epoch == self.first_epoch:
            self._lineages = {node.name: {} for node in self.operators}
        else:
            for ledger in self.ledgers.values():
                ledger.resume_without_account()
            self._tell_lost_feedback(self._feedback.resume_without_account(operators, epoch))
        self._jobs.place(session)

    def _open_log(self, store: BackupStore, log: CommitLog, epoch: int) -> OpenedLog:
        """Go on with the commit log only if it is all there, or can be done without what is not."""
        expected = Expected(
            next_epoch=epoch,
            first_epoch=self.first_epoch,
            # Rows of so many epochs wait for this part where it is behind, and are run again.
            lag=self._query.consistency.staleness if self._records_all else 0,
            goes_back=self._keeper is not None,
        )
        opened = open_log(
            store,
            log,
            [prepared.policy for prepared in self.operators.values()],
            self._marks,
            expected,
            every_epoch=self._every_epoch,
            committed_epoch=self.committed_epoch,
            accept_damage=self._query.accept_damage,
        )
        self._log_end = opened.end
        if opened.told:
            self._story.add("damage", opened.told, epoch)
        return opened

    def place_anew(self, session: SparkSession) -> None:
        """Plan for slots that restore next, and may do so on other executors than now if all do."""
        if self.catch_up is None:
            self.clean()  # where they are now: nobody would find them there after the move
        self._jobs.place(session, stay=self.catch_up is not None)

    def _resume(self, store: BackupStore, committed: int, *, short: bool = False) -> None:
        """Take over feedback, clocks and snapshots as of the end of an epoch.

        Args:
            store: The store.
            committed: The epoch.
            short: Whether the log lacks records, so that no feedback of the epoch can be known but
                by a snapshot: a query that can go back will.
        """
        operators = list(self.operators.values())
        self._recorded = {
            node.name: in_force(self._history, node, committed + 1) for node in self.operators
        }
        self._clocks |= {
            p.name: stored_clock(self._history, p, committed + 1)
            for p in operators
            if keeps_clock(p)
        }
        snapshot = self._history.complete_snapshot(committed + 1)
        if self._keeper is not None:
            self._keeper.resume(snapshot, self.first_epoch)
        if self._keeper is not None and snapshot is not None and snapshot.epoch == committed:
            self._feedback.put_back(store, self._history, snapshot, operators)
            self._clocks |= clocks_in(store, snapshot, operators)
        elif self._keeper is None or not short:
            found = self._feedback.resume(store, self._history, operators, committed)
            self._tell_lost_feedback(found)

    def _tell_lost_feedback(self, losses: Sequence[LossRecord]) -> None:
        cause = "the driver died before it was durable"
        for loss in losses:
            self._story.add("feedback-lost", cause, loss.epoch, items=loss.items)
        self._note_feedback()

    def _note_feedback(self) -> None:
        for node in self.operators:
            if node.feedback_to is not None:
                self.ledgers[node.name].note_feedback(*self._feedback.told(node.name))

    @property
    def snapshot_epoch(self) -> int:
        """Epoch of the newest complete snapshot; the one before the first where there is none."""
        snapshot = self._history.complete_snapshot(self.committed_epoch + 1)
        return self.first_epoch - 1 if snapshot is None else snapshot.epoch

    def still_there(self) -> frozenset[SlotId]:
        """Slots whose state is resident as of the last committed epoch; later ones are undone."""
        found = self._requests.ask("probe", self.committed_epoch)
        return frozenset(SlotId(*slot) for slot in found)

    def go_back(self, epoch: int, why: str, catch_up: CatchUp | None = None) -> None:
        """Forget all that came after ``epoch``, whose snapshot slots restore when they run.

        Args:
            epoch: The snapshot's.
            why: What was lost.
            catch_up: Which slots do so, where not all.
        """
        assert self._store is not None
        assert self._jobs.board is not None
        assert self._lineages is not None
        self._jobs.board.forget()  # reports of epochs that will be run again
        if self._keeper is not None:
            self._keeper.lost(why, self.committed_epoch + 1)
        self._distrust_all(catch_up)
        self.committed_epoch, self.catch_up, self._snapshot = epoch, catch_up, None
        if catch_up is None:
            self._clocks = {node.name: StreamClock() for node in self.operators}
            self._resume(self._store, epoch)

    def _distrust_all(self, but: CatchUp | None = None) -> None:
        """Let slots restore their state whatever is resident; all but those that stay."""
        assert self._lineages is not None
        # No state that is resident anywhere has such a lineage, so none is taken for the right one.
        lineage = f"rewound-{uuid.uuid4().hex}"
        for node in self.operators:
            stay = () if but is None else but.kept(node.name, node.slots)
            goes = (slot for slot in range(node.slots) if slot not in stay)
            self._lineages[node.name] |= dict.fromkeys(goes, lineage)

    # ---- 1. control ----------------------------------------------------------------------------

    def _control(
        self, prepared: PreparedOperator, epoch: int, purpose: Purpose, table: str
    ) -> SlotControl:
        name = prepared.name
        sent = self._feedback.waiting(name) if purpose == "epoch" else None
        return SlotControl(
            query=self._query_id,
            run=self._run_id,
            operator=name,
            slots=prepared.slots,
            epoch=epoch,
            first_epoch=self.first_epoch,
            fingerprint=prepared.digest,
            lineages=None if self._lineages is None else self._lineages[name],
            turn=self._jobs.turn,
            purpose=purpose,
            read_table=table,
            arena_scope=self._query.arena_scope,
            arena_dir=self._query.arena_dir,
            feedback=sent.items if sent else b"",
            feedback_epoch=sent.epoch if sent else -1,
            clock=self._clocks[name],
            snapshot=self._snapshot,
            log_end=self._log_end,
            accept_damage=self._query.accept_damage,
            in_doubt=self._history.in_doubt(name, prepared.slots, epoch),
            divergences=self.ledgers[name].divergences(epoch - 1),
            kept=self.catch_up.kept(name, prepared.slots) if self.catch_up else (),
            kept_version=self.catch_up.through if self.catch_up else -1,
        )

    def program(
        self, node: OperatorNode, epoch: int, purpose: Purpose = "epoch", table: str = ""
    ) -> Program:
        """What the slots of an operator are told."""
        prepared = self.operators[node]
        return Program(
            control=self._control(prepared, epoch, purpose, table),
            operator=prepared.blob,
            policy=prepared.policy,
            placement=prepared.placement,
            store=self._address,
            output_schema=prepared.table_schema(table) if table else prepared.output_arrow,
            faults=self._query.faults,
            feedback_schema=prepared.feedback_arrow,
            window=prepared.window,
            event_time=node.event_time,
            drops_event_time=prepared.combine is not None and node.event_time not in node.key,
        )

    def _task(
        self,
        node: OperatorNode,
        by_slot: DataFrame,
        epoch: int,
        purpose: Purpose = "epoch",
        table: str = "",
    ) -> DataFrame:
        program = self.program(node, epoch, purpose, table)
        assert self._jobs.board is not None
        rows = (
            from_arrow_schema(program.output_schema) if table else self.operators[node].output_spark
        )
        return by_slot.mapInArrow(SlotTask(program, self._jobs.board), rows)

    # ---- 2. and 3. slots -----------------------------------------------------------------------

    def run(self, given: Mapping[Node, DataFrame], epoch: int) -> None:
        """Run one epoch of all operators to its commit.

        Args:
            given: Rows of sources, and of nodes of another part.
            epoch: Number of the epoch.
        """
        if self._keeper is not None and self.catch_up is None:
            self._complete_snapshot(epoch)
            self._snapshot = self._keeper.begin(epoch)
        elif (
            self._keeper is None
            and self._store is not None
            and self._jobs.lopsided(self.ledgers.values())
        ):
            self.flush(epoch - 1)  # Spark has committed that one
            assert self._jobs.session is not None
            self.place_anew(self._jobs.session)
            self._story.add("respread", "executors have joined", epoch)
        only = self.catch_up.operators if self.catch_up is not None else None
        statuses = self._jobs.run(given, epoch, only)
        reach(self._query.faults, "after-job", -1, epoch)
        self._commit(epoch, statuses)
        if self.catch_up is not None and epoch == self.catch_up.through:
            self.catch_up = None  # all are where they were

    # ---- 4. and 5. commit ----------------------------------------------------------------------

    def _commit(
        self, epoch: int, statuses: dict[tuple[str, int], SlotStatus], *, amends: bool = False
    ) -> None:
        entries = {
            slot_key(*slot): slot_commit(status)
            for slot, status in statuses.items()
            if amends or self._records_all or self._has_news(status)
        }
        items = {slot_key(*slot): s.logged for slot, s in statuses.items() if s.logged is not None}
        if not amends:
            before = self._clocks
            self._clocks = self._advanced(statuses)
            entries |= {
                slot_key(clock_name(p), 0): clock_commit(self._clocks[p.name], epoch)
                for p in self.operators.values()
                if self._store is not None
                and keeps_clock(p)
                and clock_has_news(p, before[p.name], self._clocks[p.name])
            }
        if not amends or epoch == self.committed_epoch:  # what waits is known as of that one only
            entries |= self._feedback.save(
                self._store,
                self.operators.values(),
                statuses,
                epoch=epoch,
                query_id=self._query_id,
                run_id=self._run_id,
                flush=amends,
            )
        # An epoch that was committed before and is run again needs a record even if it wrote nothing
        # this time: what the first run wrote counts no more.
        known = self._history.last_epoch
        rerun = known is not None and known >= epoch and not amends
        due = self._every_epoch and not amends
        if self._store is not None and (entries or items or rerun or due):
            record = CommitRecord(
                epoch=epoch, run=self._run_id, slots=entries, amends=amends, items=items
            )
            self._log_end = self._store.append_commit(record)
            self._history.apply(record)
            self._drop_unneeded(epoch - 1)  # that one is committed, for this one has begun
        if self._lineages is None:  # all slots have said by now what theirs are
            self._lineages = {node.name: {} for node in self.operators}
        for (operator, slot), status in statuses.items():
            self._recorded[operator][slot] = InForce(status.theta, status.under)
            if status.lineage != GENESIS:
                self._lineages[operator][slot] = status.lineage
        self._feedback.deliver(self.operators.values(), statuses)
        self._note_feedback()
        for node in self.operators:
            own = {slot: slim(s) for (name, slot), s in statuses.items() if name == node.name}
            self.ledgers[node.name].note(own)
            self.ledgers[node.name].doubt(self._history.in_doubt(node.name, node.slots, epoch + 1))
        self._story.add_epoch(statuses.values())
        self.committed_epoch = epoch
        if self._keeper is not None:
            self._keeper.note(epoch, statuses, self._held())

    def _has_news(self, status: SlotStatus) -> bool:
        prepared = next(p for p in self.operators.values() if p.name == status.operator)
        recorded = self._recorded[status.operator].get(status.slot)
        return has_news(prepared.policy, prepared.window, status, recorded)

    def _held(self) -> Held:
        """What a snapshot of the epoch that was just committed holds beside the states."""
        if self._snapshot is None:
            return {}
        return content(self._feedback, self._clocks, self.operators.values())

    def _advanced(self, statuses: Mapping[tuple[str, int], SlotStatus]) -> dict[str, StreamClock]:
        """The clocks after an epoch with these reports."""
        clocks = {}
        for node in self.operators:
            spans = [s.event_times for (name, _), s in statuses.items() if name == node.name]
            clocks[node.name] = advance(self._clocks[node.name], spans, node.lateness)
        return clocks

    def _complete_snapshot(self, epoch: int) -> None:
        assert self._keeper is not None
        assert self._store is not None
        ids = {"query_id": self._query_id, "run_id": self._run_id}
        end = self._keeper.complete(self._store, self._history, epoch, **ids)
        self._log_end = end or self._log_end

    def _drop_unneeded(self, committed: int) -> None:
        self._records_since_drop += 1
        if self._store is None or self._records_since_drop < DROP_EVERY:
            return
        self._records_since_drop = 0
        sweep(self._store, self._history, committed)

    def read_table(self, operator: PreparedOperator, name: str) -> DataFrame:
        """A table of the resident state, as of the last committed epoch."""
        return self._requests.table(operator.node, name, self.committed_epoch)

    # ---- the end -------------------------------------------------------------------------------

    def flush(self, epoch: int) -> None:
        """Make durable whatever is not, as of the end of ``epoch``."""
        if self._store is None or epoch < self.first_epoch:
            return
        if self._keeper is not None:
            if epoch != self.committed_epoch:
                return  # of the epoch before only the slots know all; the last snapshot stands
            self._complete_snapshot(epoch + 1)
            self._snapshot = self._keeper.next()
        statuses = self._requests.ask("flush", epoch)
        slots = {(node.name, slot) for node in self.operators for slot in range(node.slots)}
        self._story.add_unflushed(sorted(slots - statuses.keys()), epoch)
        if self._keeper is None:
            self._commit(epoch, statuses, amends=True)
        else:
            self._keeper.note(epoch, statuses, self._held())
            self._complete_snapshot(epoch + 1)

    def clean(self) -> None:
        """Remove the arenas."""
        self._requests.clean(self.committed_epoch)

    def release(self) -> None:
        """Forget where slots were placed."""
        self._jobs.release()
