"""The driver's part in snapshots: when one begins, what it holds, when it is complete.

A snapshot of epoch e is declared complete only when Spark has committed e, that is in a later epoch or
at the end: one that is complete never speaks of an epoch that may be run again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tether.backup.commits import CommitRecord, SlotCommit
from tether.backup.names import slot_key
from tether.backup.sweeping import sweep
from tether.core.errors import BackupError
from tether.core.graph import SlotId
from tether.engine.messages import SnapshotBarrier
from tether.engine.query.commit_entries import slot_commit
from tether.engine.writing.driver_items import ITEMS, items_header
from tether.policies.barrier import Barrier
from tether.protocols.snapshots import (
    BeginSnapshot,
    CompleteRecorded,
    CoordinatorState,
    EpochBegins,
    GiveUpSnapshot,
    PartDurable,
    PartFailed,
    RecordComplete,
    SlotsLost,
    StopStream,
    coordinate,
    resumed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.backup.commitcodec import LogEnd
    from tether.backup.frames import FrameRef
    from tether.backup.history import CommitHistory, CompleteSnapshot
    from tether.backup.protocol import BackupStore
    from tether.engine.messages import PartDone, SlotStatus
    from tether.observe.story import Story
    from tether.protocols.snapshots import CoordinatorEvent
    from tether.spark.graph.prepared import PreparedOperator

Held = dict[str, list[pa.RecordBatch]]
"""What a snapshot holds beside states: feedback in flight and clocks, by the name it is stored under."""


class _UnderWay(msgspec.Struct):
    number: int
    epoch: int
    slots: dict[SlotId, SlotCommit]
    held: Held
    bytes: int = 0


class SnapshotKeeper:
    """Coordinates the snapshots of one query.

    Args:
        policy: When snapshots begin.
        slots: All slots of the query.
        story: Where completed and abandoned ones are told.
        readable: How many epochs back the sources can be read again.
    """

    def __init__(
        self, policy: Barrier, slots: Iterable[tuple[str, int]], story: Story, readable: int
    ) -> None:
        self._policy, self._story, self._readable = policy, story, readable
        self._slots = frozenset(SlotId(*slot) for slot in slots)
        self._state = CoordinatorState()
        self._under_way: _UnderWay | None = None
        self._due = False
        self._cause = self._last_failure = ""

    def resume(self, complete: CompleteSnapshot | None, first_epoch: int) -> None:
        """Go on after an earlier run of the query, whose first epoch is given."""
        if complete is None:
            self._state = resumed(None, first_epoch - 1)
        else:
            self._state = resumed(complete.number, complete.epoch)

    def begin(self, epoch: int) -> SnapshotBarrier | None:
        """The barrier that ends this epoch, if one does.

        Raises:
            BackupError: No snapshot could be completed for so long that after this epoch there would
                be none to go back to.
        """
        self._cause = "it took too long"
        now = time.monotonic()
        event = EpochBegins(epoch=epoch, seconds=now, readable=self._readable)
        number = self._coordinate(event, epoch)
        return None if number is None else self._barrier(number, waits=self._state.held)

    def next(self) -> SnapshotBarrier:
        """The barrier of a snapshot out of turn, at the end of the query; gives up what is not over."""
        self.lost("the query is being stopped", -1)
        number = self._state.next_number
        self._state = msgspec.structs.replace(
            self._state, next_number=number + 1, number=number, missing=self._slots
        )
        return self._barrier(number, waits=True)

    def _barrier(self, number: int, *, waits: bool) -> SnapshotBarrier:
        return SnapshotBarrier(number=number, complete=self._state.complete, waits=waits)

    def note(self, epoch: int, statuses: Mapping[tuple[str, int], SlotStatus], held: Held) -> None:
        """Slots have reported: parts that they took, parts that became durable or failed.

        Args:
            epoch: The epoch.
            statuses: Reports of all slots.
            held: What a snapshot of this epoch holds beside their states.
        """
        number = self._state.number
        begun = {
            SlotId(*slot): status
            for slot, status in statuses.items()
            if status.part is not None and status.part.number == number
        }
        if number is not None and begun:
            commits = {slot: _commit_of(status) for slot, status in begun.items()}
            self._under_way = _UnderWay(number, epoch, commits, held)
        for slot, status in statuses.items():
            if status.part_done is not None:
                self._note_part(SlotId(*slot), status.part_done, epoch)

    def _note_part(self, slot: SlotId, done: PartDone, epoch: int) -> None:
        under_way = self._under_way
        if under_way is None or done.number != under_way.number:
            return
        if done.failed:
            self._cause = f"slot {slot.slot} of {slot.operator} could not write its part: "
            self._cause += done.failed
            self._coordinate(PartFailed(number=done.number), epoch)
            return
        commit = msgspec.structs.replace(under_way.slots[slot], frame=done.ref)
        under_way.slots[slot] = commit
        under_way.bytes += done.ref.length if done.ref else 0
        self._coordinate(PartDurable(slot=slot, number=done.number), epoch)

    @property
    def due(self) -> bool:
        """Whether all parts are durable, and only the record of it is missing."""
        return self._due and self._under_way is not None

    def complete(
        self, store: BackupStore, history: CommitHistory, epoch: int, *, query_id: str, run_id: str
    ) -> LogEnd | None:
        """Declare a snapshot complete whose parts are durable; Spark has committed its epoch.

        Should the record of it fail, the snapshot is given up and the stream goes on.

        Returns:
            Where the commit log ends now, if it has grown.
        """
        if not self.due:
            return None
        try:
            record = self._record(store, query_id, run_id)
            end = store.append_commit(record)
        except BackupError as error:
            if self._under_way is not None:
                self._cause = str(error)
                self._coordinate(PartFailed(number=self._under_way.number), epoch)
            return None
        history.apply(record)
        self._recorded(epoch)
        sweep(store, history, epoch - 1)  # what only older snapshots need
        return end

    def _record(self, store: BackupStore, query_id: str, run_id: str) -> CommitRecord:
        """The record by which the snapshot is complete."""
        taken = self._under_way
        assert taken is not None
        items: dict[str, FrameRef] = {}
        for name, batches in taken.held.items():
            header = items_header(
                name,
                query=query_id,
                run=run_id,
                epoch=taken.epoch,
                sequence=taken.number,
                entries=sum(batch.num_rows for batch in batches),
                cause="snapshot",
            )
            items[slot_key(name, 0)] = store.append(header, {ITEMS: batches})
        slots = {slot_key(*slot): commit for slot, commit in taken.slots.items()}
        return CommitRecord(
            epoch=taken.epoch, run=run_id, slots=slots, complete=taken.number, items=items
        )

    def _recorded(self, epoch: int) -> None:
        """The record is durable: this is now the snapshot to go back to."""
        taken = self._under_way
        assert taken is not None
        self._coordinate(CompleteRecorded(number=taken.number), epoch)
        self._story.add(
            "snapshot",
            "every part is durable",
            taken.epoch,
            number=taken.number,
            bytes=taken.bytes,
            recorded_in=epoch,
        )
        self._under_way, self._due = None, False

    def lost(self, why: str, epoch: int) -> None:
        """Slots lost their state, or the query ends: what is not complete will never be."""
        self._cause = why
        self._coordinate(SlotsLost(), epoch)

    def _coordinate(self, event: CoordinatorEvent, epoch: int) -> int | None:
        begun = None
        self._state, asked = coordinate(self._state, event, self._policy, self._slots)
        for step in asked:
            if isinstance(step, StopStream):
                raise BackupError(
                    f"The query stops before epoch {epoch}: no snapshot of it was completed in "
                    f"{step.behind} epochs.",
                    why=f"{self._last_failure or 'Parts of the newest one are still being written.'} "
                    f"Spark keeps the offsets of {self._readable} epochs, so after one more a loss "
                    "could not be undone.",
                    do="Nothing is lost. See to the backup store, then restart the query with "
                    f"spark.sql.streaming.minBatchesToRetain above {step.behind + 1}.",
                )
            if isinstance(step, BeginSnapshot):
                begun = step.number
            elif isinstance(step, RecordComplete):
                self._due = True
            elif isinstance(step, GiveUpSnapshot):
                self._under_way, self._due = None, False
                self._last_failure = f"The newest one was given up: {self._cause}."
                self._story.add("given-up", self._cause, epoch, number=step.number)
        return begun


def _commit_of(status: SlotStatus) -> SlotCommit:
    assert status.part is not None
    # The parts of a complete snapshot hold the states whole: nothing differs.
    return msgspec.structs.replace(
        slot_commit(status), kind=status.part.kind, divergence_after=0.0, exact=True
    )


def keeper_for(
    operators: Iterable[PreparedOperator], story: Story, readable: int
) -> SnapshotKeeper | None:
    """The keeper of the snapshots of some operators, where their policy takes any."""
    operators = list(operators)
    policy = operators[0].policy
    if not isinstance(policy, Barrier):
        return None
    slots = [(one.name, slot) for one in operators for slot in range(one.slots)]
    return SnapshotKeeper(policy, slots, story, readable)
