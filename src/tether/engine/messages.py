"""What driver and slots tell each other: control out with every epoch, a status back from every slot."""

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
"""In place of a lineage: a copy that holds no state."""

ArenaScope = Literal["node", "executor"]

Purpose = Literal["epoch", "flush", "clean", "read", "probe", "copy"]
"""What a task is for: to run an epoch; or, between epochs, to make state durable, to remove it, to
give its rows, to say that it is there, to copy it for a run that goes ahead."""


def resident_id(slots: int, slot: Slot, seat: Seat | None) -> ResidentId:
    """The name of the resident state of a slot, or of one of its seats where slots have copies."""
    return ResidentId(slot if seat is None else slot + slots * (1 + seat))


class StreamClock(msgspec.Struct, frozen=True, kw_only=True):
    """How far event time has come, by the reports of all slots up to the epoch before; in seconds."""

    newest: float | None = None
    """Newest event time taken in."""
    watermark: float | None = None
    """Up to here windows are complete; None while nothing is known."""
    passed: float | None = None
    """The watermark of the epoch before: windows that ended up to here were ended then."""


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
    """Names the run: state that another one left is not taken for its own."""
    step: int = 0
    """How often it was given rows before."""
    in_place: bool = False
    """Whether it works on the query's own state, which is rolled back when the query continues."""


class SlotControl(msgspec.Struct, frozen=True, kw_only=True):
    """What an epoch's task must know; the same for all slots of an operator, so it stays small."""

    query: str
    run: str
    """Id of this driver's run; a restarted driver has another."""
    operator: str
    slots: int
    epoch: Epoch
    first_epoch: Epoch
    fingerprint: str
    """Digest of program, state schema and keys: an arena of another one is refused."""
    lineages: dict[Slot, Lineage] | None
    """Lineage that each slot's resident state must have, where it is not GENESIS; None if unknown."""
    turn: int = 0
    """How often this driver has begun to run an epoch: every retry of one has a turn of its own, and
    all that a sink does with the output of one try has the same."""
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
    """Where the commit log ends: one that ends before is an old one."""
    accept_damage: bool = False
    """Whether a slot may continue from a backup that lacks an unknown amount of state."""
    in_doubt: frozenset[Slot] = frozenset()
    """Slots whose backups may be such: what they write next is to be a whole image."""

    divergences: dict[Slot, float] = {}
    """What each slot reported at the end of the epoch before, as far as this driver has heard it: a
    loss costs no more."""

    kept: frozenset[Slot] = frozenset()
    """Slots that stay as they are: they have applied this epoch already, others read it again."""
    kept_version: Epoch = NEVER
    """The epoch whose end those have come to."""

    arena: str = ""
    """Names the resident state, where it is not the query's own: a twin's."""
    after: Epoch | None = None
    """Where the rows of several epochs come as one, as ``epoch``: the epoch before the first of them."""
    start: Epoch | None = None
    """Of a twin: the epoch of the exact state that it starts from. A slot that finds no state of its own
    restores that, whole, or the twin ends: later backups are of the run that has lost something."""
    stale: frozenset[Slot] = frozenset()
    """Slots that may continue from an old snapshot: what they give is tentative."""
    skipped: frozenset[Slot] = frozenset()
    """Slots that give nothing, for their state is gone."""
    ahead: Ahead | None = None
    """Where this run goes ahead of the query: how."""
    seats: Seats | None = None
    """Which seats there are and who speaks, where slots have copies; else slot i runs in seat i."""

    @property
    def first(self) -> Epoch:
        """The first epoch whose rows come now: the only one, mostly."""
        return self.epoch if self.after is None else epoch_after(self.after)

    def resident_id(self, slot: Slot, seat: Seat) -> ResidentId:
        """The name under which the resident state of a slot's seat is found.

        Seats may be given to other slots later: none must find the state of another there.
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
    """A backup that is being written while epochs go on."""

    work: PartAtWork
    kind: Literal["full", "partial"]
    cause: Cause
    entries: int
    carried: float
    run: str = ""
    """The driver's run that it was begun in. In another one it never counts: a new driver removes all
    frames that no record names."""


class SlotMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot itself remembers between epochs, beside its state, rolled back with it."""

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
    """Bytes of frames since the last full one: what a recovery would read besides that one."""
    full_bytes: int = 0
    """Bytes of the last full frame."""
    task: str = ""
    """Spark task that applied the last epoch."""
    run: str = ""
    """Run of the driver for which it did."""
    turn: int = -1
    """That driver's turn."""
    items: int = 0
    """Rows taken in since the state was last lost: the place of windows that go by items."""
    part: PartAtWork | None = None
    """The part of a snapshot that is being written."""
    early: EarlyBackup | None = None
    """The backup that is being written before it must be."""
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
    """Where it lies; None where the writing failed."""
    failed: str = ""
    """Why it failed, if it did."""
    seconds: float = 0.0


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a slot came back: from where, with what loss, and how long each phase took."""

    reason: str
    backup_epoch: Epoch
    exact: bool
    """Whether the backup held the state as of the epoch before: nothing was lost."""
    bound: float
    """Most divergence that the loss can have cost."""
    extra_bound: float = 0.0
    """How much of that is due to backups that could not be read; infinite where commit records are
    missing."""
    loss: LossRecord | None = None
    """What the slot's account is to say of it; None where nothing was lost."""
    frames: int = 0
    bytes: int = 0
    entries: int = 0
    unreadable: list[str] = []
    seconds: dict[str, float] = {}
    rows_replayed: int = 0
    """Logged rows that the slot was given again."""


class SlotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A slot's account of one epoch."""

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
    """Whether the task found this epoch already or half applied, and undid it first."""
    frame: WrittenFrame | None
    recovery: RecoveryReport | None
    seconds: dict[str, float]
    changed: int = 0
    """Entries of state that the epoch changed: what a policy that loses nothing would have written."""
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
    """Whether the epoch may be committed only with a record of this slot: the policy asked for it."""
    part_done: PartDone | None = None
    """A part, of this epoch or an earlier one, whose writing has ended."""
    room: int = -1
    """Bytes that are free where the state is; only told when the slot is asked whether it is there."""


encode_status = msgspec.msgpack.Encoder().encode
decode_status = msgspec.msgpack.Decoder(SlotStatus).decode
encode_memory = msgspec.msgpack.Encoder().encode
decode_memory = msgspec.msgpack.Decoder(SlotMemory).decode
