"""Messages between driver and slots: a control goes out with every epoch, each slot returns a status."""

from __future__ import annotations

from typing import Literal

import msgspec

# msgspec reads the annotations at run time.
from tether.backup.commitcodec import LogEnd  # noqa: TC001
from tether.backup.frames import FrameRef  # noqa: TC001
from tether.core.ids import (
    GENESIS,
    NEVER,
    Epoch,
    Failures,
    FrameNumber,
    Lineage,
    ResidentId,
    Seat,
    Slot,
    SnapshotNumber,
    epoch_after,
)
from tether.core.losses import LossRecord  # noqa: TC001
from tether.policies.instructions import Cause  # noqa: TC001
from tether.protocols.copies import Seats  # noqa: TC001

NO_STATE = Lineage("")
"""Used instead of a lineage: a copy that holds no state."""

ArenaScope = Literal["node", "executor"]

Purpose = Literal["epoch", "flush", "clean", "read", "probe", "copy"]
"""What a task does: run an epoch; or, between epochs, make state durable (flush), remove it (clean),
return its rows (read), report that it is present (probe), or copy it for a run ahead of the query
(copy)."""


def resident_id(slots: int, slot: Slot, seat: Seat | None) -> ResidentId:
    """The name of the resident state of a slot, or of one of its seats where slots have copies."""
    return ResidentId(slot if seat is None else slot + slots * (1 + seat))


class StreamClock(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of event time, from the reports of all slots up to the previous epoch; in seconds."""

    newest: float | None = None
    """Newest event time seen."""
    watermark: float | None = None
    """Windows that end up to here are complete; None while nothing is known."""
    passed: float | None = None
    """The watermark of the previous epoch: windows that end up to here were ended in that epoch."""


class SnapshotBarrier(msgspec.Struct, frozen=True, kw_only=True):
    """The mark of a snapshot between two epochs."""

    number: SnapshotNumber
    complete: SnapshotNumber | None
    """Number of the newest complete one."""
    waits: bool = False
    """Whether slots wait until their parts are durable, whatever the policy says."""


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes ahead of the query, on input of which something is missing.

    It begins from the query's own state, and nothing that it does becomes durable.
    """

    lineages: dict[Slot, Lineage] | None
    """Lineage of each slot's own state, where it is not GENESIS; None if any will do."""
    name: str
    """Id of the run, so that it never uses state that another run has left."""
    step: int = 0
    """How many times it was given rows before."""
    in_place: bool = False
    """Whether it works on the query's own state, which is rolled back when the query continues."""


class SlotControl(msgspec.Struct, frozen=True, kw_only=True):
    """What an epoch's task must know.

    It is the same for all slots of an operator, so it is sent once.
    """

    query: str
    run: str
    """Id of this driver's run; a restarted driver has another."""
    operator: str
    slots: int
    epoch: Epoch
    first_epoch: Epoch
    fingerprint: str
    """Digest of program, state schema and keys; an arena with another digest is refused."""
    lineages: dict[Slot, Lineage] | None
    """Lineage that each slot's resident state must have, where it is not GENESIS; None if unknown."""
    turn: int = 0
    """How many times this driver has started an epoch. Every retry of an epoch has a turn of its own;
    all actions of a sink on the output of one try have the same turn."""
    purpose: Purpose = "epoch"
    read_table: str = ""
    """The table to read, where that is the purpose."""
    arena_scope: ArenaScope = "node"
    arena_dir: str | None = None
    feedback: bytes = b""
    """Newest feedback items for this operator, as an Arrow stream."""
    feedback_epoch: Epoch = NEVER
    """The epoch in which they were sent; -1 where there are none yet."""
    clock: StreamClock = StreamClock()
    snapshot: SnapshotBarrier | None = None
    """The barrier that ends this epoch, if one does."""

    log_end: LogEnd | None = None
    """Where the commit log ends. A slot that reads a shorter log has read an old version of it."""
    accept_damage: bool = False
    """Whether a slot may continue from a backup that lacks an unknown amount of state."""
    in_doubt: frozenset[Slot] = frozenset()
    """Slots whose backups may lack state: their next backup must be a whole image."""

    divergences: dict[Slot, float] = {}
    """The divergence that each slot reported at the end of the previous epoch, as far as this driver
    knows it. A loss costs at most this."""

    kept: frozenset[Slot] = frozenset()
    """Slots that keep their state: they have already applied this epoch, which other slots run again."""
    kept_version: Epoch = NEVER
    """The last epoch that these slots have applied."""

    arena: str = ""
    """Names the resident state, where it is not the query's own: a twin's."""
    after: Epoch | None = None
    """If several epochs are run as one, with the number ``epoch``: the epoch before the
    first of them."""
    start: Epoch | None = None
    """For a twin: the epoch of the exact state that it starts from. A slot that finds no state of its
    own restores that, whole, or the twin ends: later backups are of the run that has lost something."""
    stale: frozenset[Slot] = frozenset()
    """Slots that may continue from an old snapshot: what they give is tentative."""
    skipped: frozenset[Slot] = frozenset()
    """Slots that give no output, because their state is lost."""
    ahead: Ahead | None = None
    """How this run works ahead of the query; None if it does not."""
    seats: Seats | None = None
    """Which seats there are and which of them speak, where slots have copies; otherwise slot i runs in
    seat i."""

    @property
    def first(self) -> Epoch:
        """The first epoch whose rows are run now; usually there is only one."""
        return self.epoch if self.after is None else epoch_after(self.after)

    def resident_id(self, slot: Slot, seat: Seat) -> ResidentId:
        """The name of the resident state of a slot's seat.

        It contains the slot, because a seat may be given to another slot later, which must not find this
        state.
        """
        return resident_id(self.slots, slot, None if self.seats is None else seat)

    def expects(self, slot: Slot, seat: Seat | None = None) -> Lineage | None:
        """Lineage that the resident state of a slot's seat must have; None where any will do."""
        if self.seats is not None and seat is not None and not self.seats.speaks(seat):
            return self.seats.lineages.get(seat, NO_STATE)
        return None if self.lineages is None else self.lineages.get(slot, GENESIS)


class PartAtWork(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a snapshot, or a backup, that a process was still writing when its epoch ended."""

    number: int
    """The snapshot's, or the export's."""
    attempt: str
    """Names the note that the writer leaves when it is done."""
    writer: tuple[int, str]
    """The process that writes: its number and start time."""


class EarlyBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that is written while later epochs run."""

    work: PartAtWork
    kind: Literal["full", "partial"]
    cause: Cause
    entries: int
    carried: float
    run: str = ""
    """The driver's run in which it began. In another run it never counts, because a new driver removes
    all frames that no record names."""


class SlotMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot stores beside its state between epochs. It is rolled back together with the state."""

    lineage: Lineage = GENESIS
    failures: Failures = Failures(0)
    losses: Failures = Failures(0)
    """How many of the failures cost anything."""
    policy_state: bytes = b""
    under: str = ""
    """Name of the terms that the policy's state belongs to."""
    sequence: FrameNumber = FrameNumber(0)
    """Number of the slot's last frame."""
    log_bytes: int = 0
    """Bytes of frames since the last full one: what a recovery reads in addition to that one."""
    full_bytes: int = 0
    """Bytes of the last full frame."""
    task: str = ""
    """Spark task that applied the last epoch."""
    run: str = ""
    """The driver's run that it did so for."""
    turn: int = -1
    """The turn of that driver."""
    items: int = 0
    """Rows processed since the state was last lost: the position for windows by items."""
    part: PartAtWork | None = None
    """The part of a snapshot that is being written."""
    early: EarlyBackup | None = None
    """The backup that is being written before it is required."""
    ahead: tuple[str, int] | None = None
    """The run that went ahead of the query on this state, and its last turn."""


class WrittenFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that a slot wrote in this epoch; it counts once the driver has committed the epoch."""

    ref: FrameRef
    kind: Literal["full", "partial"]
    cause: Cause
    entries: int
    carried: float
    divergence_before: float
    divergence_after: float
    seconds: float


class PartTaken(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot copied for a snapshot; it counts once it is durable and all others are."""

    number: SnapshotNumber
    kind: Literal["full", "partial"]
    entries: int


class PartDone(msgspec.Struct, frozen=True, kw_only=True):
    """How the writing of a part ended."""

    number: int
    ref: FrameRef | None = None
    """Where it is stored; None if the writing failed."""
    failed: str = ""
    """Why it failed, if it did."""
    seconds: float = 0.0


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a slot was restored: from what, with what loss, and how long each phase took."""

    reason: str
    backup_epoch: Epoch
    exact: bool
    """Whether the backup held the state as of the previous epoch, so that nothing was lost."""
    bound: float
    """Largest divergence that may have been lost."""
    extra_bound: float = 0.0
    """How much of that is due to backups that could not be read; infinite where commit records are
    missing."""
    loss: LossRecord | None = None
    """The entry for the slot's account of losses; None where nothing was lost."""
    frames: int = 0
    bytes: int = 0
    entries: int = 0
    unreadable: list[str] = []
    seconds: dict[str, float] = {}
    rows_replayed: int = 0
    """Number of logged rows that were replayed."""


class SlotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A slot's report of one epoch."""

    operator: str
    slot: Slot
    epoch: Epoch
    turn: int
    """The driver's turn that the task belonged to."""
    attempt: str
    executor: str
    lineage: Lineage
    failures: Failures
    losses: Failures
    """How many of the failures, under whatever policy, cost anything."""
    policy_state: bytes
    under: str
    """Name of the terms that ``theta`` and the policy's state belong to."""
    theta: float
    divergence: float
    """Distance from resident state to committed backups, with this epoch's frame counted."""
    exact: bool
    """Whether no entry differs from the backups, with this epoch's frame counted."""
    rows_in: int
    rows_out: int
    resident_bytes: int
    rolled_back: bool
    """Whether the task found this epoch applied, in whole or in part, and rolled it back first."""
    frame: WrittenFrame | None
    recovery: RecoveryReport | None
    seconds: dict[str, float]
    changed: int = 0
    """Entries of state that the epoch changed: what an exact policy would have written."""
    feedback: bytes = b""
    """Feedback items sent in this epoch, as an Arrow stream."""
    feedback_epoch: Epoch = NEVER
    """Epoch of the feedback that this epoch was run with."""
    event_times: tuple[float, float] | None = None
    """Oldest and newest event time among the slot's rows, in seconds."""
    logged: FrameRef | None = None
    """The epoch's rows and feedback, logged before the slot processed them."""
    part: PartTaken | None = None
    """Its part of the snapshot whose barrier ended this epoch."""
    must_record: bool = False
    """Whether the policy asked that the epoch be committed only with a record of this slot."""
    part_done: PartDone | None = None
    """A part, of this epoch or an earlier one, whose writing has ended."""
    room: int = -1
    """Bytes that are free where the state is; only told when the slot is asked whether it is there."""


encode_status = msgspec.msgpack.Encoder().encode
decode_status = msgspec.msgpack.Decoder(SlotStatus).decode
encode_memory = msgspec.msgpack.Encoder().encode
decode_memory = msgspec.msgpack.Decoder(SlotMemory).decode
