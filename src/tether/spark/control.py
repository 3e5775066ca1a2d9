"""What driver and slots tell each other: control out with every epoch, a status back from every slot."""

from __future__ import annotations

from typing import Literal

import msgspec

from tether.backup.frames import FrameRef  # noqa: TC001 - msgspec reads the annotations at run time

GENESIS = "genesis"
"""Lineage of a slot's state that has never been lost since the query's first epoch."""

ArenaScope = Literal["node", "executor"]

Purpose = Literal["epoch", "flush", "clean", "read", "probe"]
"""What a task is for: to run an epoch; or, between epochs, to make state durable, to remove it, to
give its rows, to say that it is there."""


class StreamClock(msgspec.Struct, frozen=True, kw_only=True):
    """How far event time has come, by the reports of all slots up to the epoch before; in seconds."""

    newest: float | None = None
    """Newest event time taken in."""
    watermark: float | None = None
    """Up to here windows are complete; None while nothing is known."""
    passed: float | None = None
    """The watermark of the epoch before: windows that ended up to here were ended then."""


class SlotControl(msgspec.Struct, frozen=True, kw_only=True):
    """What an epoch's task must know; the same for all slots of an operator, so it stays small."""

    query: str
    run: str
    """Id of this driver's run; a restarted driver has another."""
    operator: str
    slots: int
    epoch: int
    first_epoch: int
    fingerprint: str
    """Digest of program, state schema and keys: an arena of another one is refused."""
    lineages: dict[int, str] | None
    """Lineage that each slot's resident state must have, where it is not GENESIS; None if unknown."""
    purpose: Purpose = "epoch"
    read_table: str = ""
    """The table to read, where that is the purpose."""
    arena_scope: ArenaScope = "node"
    arena_dir: str | None = None
    feedback: bytes = b""
    """Newest feedback items for this operator, as an Arrow stream."""
    feedback_epoch: int = -1
    """The epoch in which they were sent; -1 where there are none yet."""
    clock: StreamClock = StreamClock()
    snapshot: tuple[int, int | None] | None = None
    """Number of the snapshot whose barrier ends this epoch, and of the newest complete one."""

    newest_record: tuple[int, str] | None = None
    """Epoch and run of the newest commit record: a log without it is an old one."""

    kept: tuple[int, ...] = ()
    """Slots that stay as they are: they have applied this epoch already, others read it again."""
    kept_version: int = -1
    """The epoch whose end those have come to."""

    def expects(self, slot: int) -> str | None:
        """Lineage that the slot's resident state must have; None where any will do."""
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
    cause: str
    entries: int
    carried: float


class SlotMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot itself remembers between epochs, beside its state, rolled back with it."""

    lineage: str = GENESIS
    failures: int = 0
    policy_state: bytes = b""
    sequence: int = 0
    """Number of the slot's last frame."""
    log_bytes: int = 0
    """Bytes of frames since the last full one: what a recovery would read besides that one."""
    full_bytes: int = 0
    """Bytes of the last full frame."""
    task: str = ""
    """Spark task that applied the last epoch."""
    items: int = 0
    """Rows taken in since the state was last lost: the place of windows that go by items."""
    part: PartAtWork | None = None
    """The part of a snapshot that is being written."""
    early: EarlyBackup | None = None
    """The backup that is being written before it must be."""
    extra: float = 0.0
    """By how much unreadable backups have widened the slot's bound so far."""


class WrittenFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that a slot wrote in this epoch; it counts once the driver has committed the epoch."""

    ref: FrameRef
    kind: Literal["full", "partial"]
    cause: str
    entries: int
    carried: float
    divergence_before: float
    divergence_after: float
    seconds: float


class PartTaken(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot copied for a snapshot; it counts once it is durable and all others are."""

    number: int
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
    backup_epoch: int
    exact: bool
    """Whether the backup held the state as of the epoch before: nothing was lost."""
    bound: float
    extra_bound: float = 0.0
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
    slot: int
    epoch: int
    attempt: str
    executor: str
    lineage: str
    failures: int
    policy_state: bytes
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
    feedback: bytes = b""
    """Feedback items sent in this epoch, as an Arrow stream."""
    feedback_epoch: int = -1
    """Epoch of the feedback that this epoch was run with."""
    event_times: tuple[float, float] | None = None
    """Oldest and newest event time among the slot's rows, in seconds."""
    windows_ended: int = 0
    logged: FrameRef | None = None
    """The epoch's rows and feedback, logged before the slot processed them."""
    part: PartTaken | None = None
    """Its part of the snapshot whose barrier ended this epoch."""
    part_done: PartDone | None = None
    """A part, of this epoch or an earlier one, whose writing has ended."""
    extra: float = 0.0
    """By how much unreadable backups have widened the slot's bound so far."""


encode_status = msgspec.msgpack.Encoder().encode
decode_status = msgspec.msgpack.Decoder(SlotStatus).decode
encode_memory = msgspec.msgpack.Encoder().encode
decode_memory = msgspec.msgpack.Decoder(SlotMemory).decode
