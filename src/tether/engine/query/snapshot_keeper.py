"""The driver's part in snapshots: when one begins, what it holds, when it is complete.

A snapshot of epoch e is declared complete only when Spark has committed e, that is in a later epoch or
at the end. So a complete snapshot is never of an epoch that may be run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec
import pyarrow as pa

from tether.backup.commits import CommitRecord, SlotCommit
from tether.backup.names import slot_key
from tether.core.errors import BackupError
from tether.core.graph import SlotId  # noqa: TC001 - msgspec reads the annotations at run time
from tether.core.ids import DRIVERS, NEVER, Epoch, FrameNumber, SnapshotNumber, epoch_before
from tether.engine.messages import SnapshotBarrier
from tether.engine.query.commit_entries import slot_commit
from tether.engine.writing.driver_items import ITEMS, items_header
from tether.protocols.snapshots import (
    BeginSnapshot,
    CompleteRecorded,
    CoordinatorState,
    DropOlder,
    EpochBegins,
    GiveUpSnapshot,
    LastSnapshot,
    PartFailed,
    PartsDurable,
    RecordComplete,
    ReleaseSources,
    SlotsLost,
    StopStream,
    coordinate,
    resumed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.backup.frames import FrameRef
    from tether.backup.recorded import CompleteSnapshot
    from tether.engine.messages import PartDone, SlotStatus
    from tether.engine.ports import Clock, Reports
    from tether.engine.query.commit_log import OpenCommitLog, RunIds
    from tether.policies.policy import SnapshotSchedule
    from tether.protocols.snapshots import CoordinatorEvent, CoordinatorInstruction

Held = dict[str, list[pa.RecordBatch]]
"""What a snapshot contains in addition to states: feedback in flight and clocks, by stored name."""


class _UnderWay(msgspec.Struct):
    number: SnapshotNumber
    epoch: Epoch
    slots: dict[SlotId, SlotCommit]
    held: Held
    bytes: int = 0


class SnapshotKeeper:
    """Coordinates the snapshots of one query.

    Args:
        policy: When snapshots begin.
        slots: All slots of the query.
        reports: Where completed and abandoned ones are told.
        readable: How many epochs back the sources can be read again.
        clock: For snapshots by time.
        log: Where a complete snapshot is recorded.
        ids: Who records it.
    """

    def __init__(
        self,
        policy: SnapshotSchedule,
        slots: Iterable[SlotId],
        reports: Reports,
        *,
        readable: int,
        clock: Clock,
        log: OpenCommitLog,
        ids: RunIds,
    ) -> None:
        self._policy, self._reports, self._readable = policy, reports, readable
        self._clock, self._slots = clock, frozenset(slots)
        self._log, self._ids = log, ids
        self._barrier: SnapshotBarrier | None = None
        self._state = CoordinatorState()
        self._under_way: _UnderWay | None = None
        self._due = False
        self._cause = self._last_failure = ""
        self._asked = False

    def resume(self, complete: CompleteSnapshot | None, first_epoch: Epoch) -> None:
        """Continue after an earlier run of the query, whose first epoch is given."""
        if complete is None:
            self._state = resumed(None, epoch_before(first_epoch))
        else:
            self._state = resumed(complete.number, complete.epoch)

    @property
    def due(self) -> bool:
        """Whether all parts of a snapshot are durable, and only the record of it is missing."""
        return self._due and self._under_way is not None

    @property
    def last_failure(self) -> str:
        """Why the last snapshot that was given up was."""
        return self._last_failure

    @property
    def barrier(self) -> SnapshotBarrier | None:
        """The barrier at the end of the current epoch, if there is one."""
        return self._barrier

    def begin(self, epoch: Epoch) -> None:
        """An epoch begins: decide whether a barrier ends it.

        Raises:
            BackupError: No snapshot could be completed for so long that after this epoch the source
                could not be read from the newest one on.
        """
        self._cause = "it took too long"
        event = EpochBegins(
            epoch=epoch,
            seconds=self._clock.seconds(),
            readable=self._readable,
            asked=self._asked,
        )
        self._barrier = None
        self._coordinate(event, epoch)
        self._asked = self._asked and self._barrier is None

    def ask(self) -> None:
        """Let a snapshot begin with the next epoch, or when the one that is under way has ended."""
        self._asked = True

    def begin_last(self, epoch: Epoch, why: str = "the query is being stopped") -> None:
        """Begin a snapshot out of turn, for which slots wait; gives up what is not complete.

        Args:
            epoch: The epoch at whose end it is taken: one that has ended, or the next one.
            why: What it is for.
        """
        self.give_up(why, NEVER)
        self._coordinate(LastSnapshot(epoch=epoch), epoch)

    def note(self, epoch: Epoch, statuses: Mapping[SlotId, SlotStatus], held: Held) -> None:
        """Slots have reported: parts that they took, parts that became durable or failed.

        Args:
            epoch: The epoch.
            statuses: Reports of all slots.
            held: What a snapshot of this epoch contains in addition to their states.
        """
        number = self._state.number
        begun = {
            slot: status
            for slot, status in statuses.items()
            if status.part is not None and status.part.number == number
        }
        if number is not None and begun:
            commits = {slot: _commit_of(status) for slot, status in begun.items()}
            self._under_way = _UnderWay(number, epoch, commits, held)
        if self._under_way is not None:
            number = self._under_way.number
            ended = {
                slot: status.part_done
                for slot, status in statuses.items()
                if status.part_done is not None and status.part_done.number == number
            }
            self._note_parts(self._under_way, ended, epoch)

    def _note_parts(
        self, under_way: _UnderWay, ended: Mapping[SlotId, PartDone], epoch: Epoch
    ) -> None:
        for slot, done in ended.items():
            if done.failed:
                self._cause = f"slot {slot.slot} of {slot.operator} could not write its part: "
                self._cause += done.failed
                self._coordinate(PartFailed(number=under_way.number), epoch)
                return
        for slot, done in ended.items():
            commit = msgspec.structs.replace(under_way.slots[slot], frame=done.ref)
            under_way.slots[slot] = commit
            under_way.bytes += done.ref.length if done.ref else 0
        if ended:
            durable = PartsDurable(slots=frozenset(ended), number=under_way.number)
            self._coordinate(durable, epoch)

    def complete(self, epoch: Epoch) -> None:
        """Declare a snapshot complete whose parts are durable; its epoch has been committed.

        Should the record of it fail, the snapshot is given up and the stream continues.
        """
        taken = self._under_way
        if taken is None or not self._due:
            return
        try:
            self._log.append(self._record(taken))
        except BackupError as error:
            self._cause = str(error)
            self._coordinate(PartFailed(number=taken.number), epoch)
            return
        self._coordinate(CompleteRecorded(number=taken.number), epoch)
        self._reports.add(
            "snapshot",
            "every part is durable",
            taken.epoch,
            number=taken.number,
            bytes=taken.bytes,
            recorded_in=epoch,
        )
        self._under_way, self._due = None, False

    def _record(self, taken: _UnderWay) -> CommitRecord:
        """The record by which the snapshot is complete."""
        items: dict[str, FrameRef] = {}
        ids = self._ids
        for name, batches in taken.held.items():
            header = items_header(
                name,
                query=ids.query,
                run=ids.run,
                epoch=taken.epoch,
                sequence=FrameNumber(taken.number),
                entries=sum(batch.num_rows for batch in batches),
                cause="snapshot",
            )
            items[slot_key(name, DRIVERS)] = self._log.store.append(header, {ITEMS: batches})
        slots = {slot_key(*slot): commit for slot, commit in taken.slots.items()}
        return CommitRecord(
            epoch=taken.epoch, run=ids.run, slots=slots, complete=taken.number, items=items
        )

    def give_up(self, why: str, epoch: Epoch) -> None:
        """Give up the snapshot that is under way: slots lost their state, or the query ends."""
        self._cause, self._barrier = why, None
        self._coordinate(SlotsLost(), epoch)

    def _coordinate(self, event: CoordinatorEvent, epoch: Epoch) -> None:
        self._state, asked = coordinate(self._state, event, self._policy, self._slots)
        for step in asked:
            self._carry_out(step, epoch)

    def _carry_out(self, step: CoordinatorInstruction, epoch: Epoch) -> None:
        match step:
            case BeginSnapshot(number=number, hold_sources=waits):
                complete = self._state.complete
                self._barrier = SnapshotBarrier(number=number, complete=complete, waits=waits)
            case RecordComplete():
                self._due = True
            case GiveUpSnapshot(number=number):
                self._under_way, self._due = None, False
                self._last_failure = f"The newest one was given up: {self._cause}."
                self._reports.add("given-up", self._cause, epoch, number=number)
            case DropOlder():
                self._log.drop(epoch_before(epoch))  # frames that only older snapshots need
            case StopStream(behind=behind):
                raise BackupError(
                    f"The query stops before epoch {epoch}: no snapshot of it was completed in "
                    f"{behind} epochs.",
                    why=f"{self._last_failure or 'Parts of the newest one are still being written.'} "
                    f"Spark keeps the offsets of {self._readable} epochs, so after one more a loss "
                    "could not be undone.",
                    do="Nothing is lost. See to the backup store, then restart the query with "
                    f"spark.sql.streaming.minBatchesToRetain above {behind + 1}.",
                )
            case ReleaseSources():
                pass  # nothing to do: slots hold the stream up only while they wait for their own parts
            case _:
                assert_never(step)


def _commit_of(status: SlotStatus) -> SlotCommit:
    assert status.part is not None
    # The parts of a complete snapshot contain the whole states, so their divergence is 0.
    return msgspec.structs.replace(
        slot_commit(status), kind=status.part.kind, divergence_after=0.0, exact=True
    )
