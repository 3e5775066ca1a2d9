"""What a fault-tolerance policy is: a pure function from (state, event) to (state, instructions).

The Spark runtime and the simulator execute the same policies. A policy's per-slot state is a small
frozen struct, so it can be stored beside the resident state, sent in a control record, and replayed
in a test. Nothing here reads a clock, draws a random number or touches a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from tether.core.checks import amount, count
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.budget import Budget

Cause = Literal["theta", "every-epoch", "every-items", "compaction", "flush", "handover"]
"""Why a backup was written; shown in stories and by ``tether inspect``."""

Recovery = Literal["nothing", "within-bound", "last-epoch", "replay", "rewind"]
"""How a loss is made good. ``nothing``: it is not. ``within-bound``: the slot goes on from its
backup, and the bound covers the rest. The others are exact: ``last-epoch``: from a backup of the
epoch before; ``replay``: from its backup and the logged rows since; ``rewind``: slots go back to a
snapshot and the source is read again from there. See :mod:`tether.core.rewind`."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a slot stands in its query: what its share of the budget depends on.

    In a graph that is no simple chain, let ``length`` be the number of all its operators, let
    ``position`` be ``length`` less the longest way (in operators) to an end of the graph, and count
    into ``fan_out`` that one output goes to several operators. Both only make shares smaller.

    Example:
        >>> Placement(copies=4, position=1, length=2, fan_out=3.0).copies
        4
    """

    copies: int = 1
    """n: parallel copies (slots) of the operator."""
    position: int = 1
    """i: position of the operator in its pipeline, 1 is the first."""
    length: int = 1
    """m: number of operators in the pipeline."""
    fan_out: float = 1.0
    """β: most output items that one input item can cause, in this operator or one after it."""
    errors_of_copies: Literal["add", "max"] = "add"
    """How the state errors of the copies make up the operator's: they "add" (always safe), or the
    largest counts ("max": true only for a ``max`` divergence of copies that share no key)."""

    def __post_init__(self) -> None:
        count("copies", self.copies, unit="slots")
        count("length", self.length, unit="operators")
        count("position", self.position, unit="operators")
        amount("fan_out", self.fan_out, unit="outputs per item", zero="none", infinite=None)
        if self.position > self.length:
            raise BadValueError(
                f"position={self.position} is beyond length={self.length}.",
                why="A pipeline's operators are numbered from 1 to its length.",
                do="Give the operator's place in the pipeline, and the number of its operators.",
            )


class SlotPolicyState(msgspec.Struct, frozen=True, kw_only=True):
    """All that a policy remembers of one slot between events."""

    failures: int = 0
    """k: losses of resident state recovered from so far (in the window, if there is one)."""
    failed_at: tuple[float, ...] = ()
    """Where in the stream those losses were, elder first, in the window's unit: the newest thing
    that may be wrong. Kept only for a window; one whose place is not yet known has no entry."""
    items: int = 0
    """Rows taken in so far. Kept only for a window that is counted in items, and for a policy that
    backs up every so many items."""
    items_saved: int = 0
    """Rows taken in as of the newest backup of the state. Kept only for such a policy."""
    part: int | None = None
    """Newest snapshot that the slot has written a part of: what its next part can build on."""


class EpochApplied(msgspec.Struct, frozen=True, kw_only=True, tag="epoch-applied"):
    """All rows of an epoch are in the resident state; the epoch may be committed next."""

    epoch: int
    divergence: float
    """Distance between resident state and committed backups, in units of the divergence."""
    items: int
    """Rows that the slot took in during this epoch."""
    newest_event_time: float | None = None
    """Newest event time, in seconds, that the query has taken in so far. It never falls."""
    watermark: float | None = None
    """Event time, in seconds, up to which windows are complete."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True, tag="recovered"):
    """The resident state was lost and has been replaced by the backup's."""

    epoch: int
    """The epoch that the slot is about to run."""
    newest_event_time: float | None = None
    """Newest event time, in seconds, that the query had taken in before the loss, if known."""


class WindowEnd(msgspec.Struct, frozen=True, kw_only=True, tag="window-end"):
    """A hopping window is complete: its answer is out, its state is cleared."""

    epoch: int
    end: float
    """First position after the window, in its unit (seconds, items or epochs)."""


class Flushed(msgspec.Struct, frozen=True, kw_only=True, tag="flushed"):
    """The query is being stopped on purpose: whatever is not durable should become so."""

    epoch: int
    divergence: float


class RowsReady(msgspec.Struct, frozen=True, kw_only=True, tag="rows-ready"):
    """A slot is about to be given its rows of an epoch; nobody has processed them yet."""

    epoch: int
    items: int


class BackupCounts(msgspec.Struct, frozen=True, kw_only=True, tag="backup-counts"):
    """A backup of all the state as of the end of this epoch is durable and committed."""

    epoch: int


class BarrierAligned(msgspec.Struct, frozen=True, kw_only=True, tag="barrier-aligned"):
    """All barriers of a snapshot are in: the state holds what came before it, and no more."""

    epoch: int
    number: int
    """The snapshot's."""
    complete: int | None
    """Newest complete snapshot, as the coordinator knows it."""


Event = EpochApplied | Recovered | WindowEnd | Flushed | RowsReady | BackupCounts | BarrierAligned


class BackUpState(msgspec.Struct, frozen=True, kw_only=True, tag="back-up-state"):
    """Make state durable, worst entries first, until the divergence is at most ``target``."""

    target: float
    cause: Cause
    wait: bool = True
    """Whether the epoch may be committed only once this is durable. If not, the write may go on in
    the background; to wait all the same is always right."""


class RecordFailures(msgspec.Struct, frozen=True, kw_only=True, tag="record-failures"):
    """Make the number of failures durable before the slot goes on (AF-Stream 2019 §3.5.2)."""

    failures: int
    state: SlotPolicyState | None = None
    """All that the policy knows of the slot: to be stored, and given to ``step`` after the next
    loss. If only the number is stored, windows give thresholds back later than they could."""


class LogRows(msgspec.Struct, frozen=True, kw_only=True, tag="log-rows"):
    """Make the epoch's rows for this slot durable where they come from, before it gets them."""

    epoch: int


class TrimRows(msgspec.Struct, frozen=True, kw_only=True, tag="trim-rows"):
    """Logged rows of epochs up to this one are fully processed: they may be deleted."""

    upto: int


class TakePart(msgspec.Struct, frozen=True, kw_only=True, tag="take-part"):
    """Copy the state as it is now, and make the copy durable as the slot's part of a snapshot."""

    number: int
    onto: int | None
    """The snapshot whose part this one builds on: only what changed since is written. None: all."""
    wait: bool
    """Whether the epoch may be committed only once it is durable."""


Instruction = BackUpState | RecordFailures | LogRows | TrimRows | TakePart


class Policy(Protocol):
    """A fault-tolerance policy: immutable settings and a pure transition function."""

    @property
    def name(self) -> str:
        """Word by which the policy is known in the CLI, manifests and stories."""
        ...

    @property
    def keeps_backups(self) -> bool:
        """Whether state is ever backed up; if not, the runtime skips all tracking."""
        ...

    @property
    def recovery(self) -> Recovery:
        """How a loss is made good."""
        ...

    @property
    def budget(self) -> Budget:
        """What the policy promises: the most that all failures together may cost."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Settings as plain values, for the manifest's fingerprint."""
        ...

    def initial(self) -> SlotPolicyState:
        """State of a slot that has never failed."""
        ...

    def threshold(self, state: SlotPolicyState, placement: Placement) -> float:
        """θ: the largest divergence that a slot may carry into a committed epoch now."""
        ...

    def step(
        self, state: SlotPolicyState, event: Event, placement: Placement
    ) -> tuple[SlotPolicyState, tuple[Instruction, ...]]:
        """Take one event in; give the new state and what the runtime must do, in order."""
        ...
