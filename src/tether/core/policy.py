"""What a fault-tolerance policy is: a pure function from (state, event) to (state, instructions).

The Spark runtime and the simulator execute the same policies. A policy's per-slot state is a small
frozen struct, so it can be stored beside the resident state, sent in a control record, and replayed
in a test. Nothing here reads a clock, draws a random number or touches a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

Cause = Literal["theta", "every-epoch", "compaction", "flush", "handover"]
"""Why a backup was written; shown in stories and by ``tether inspect``."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a slot stands in its query: what its share of the budget depends on."""

    copies: int = 1
    """n: parallel copies (slots) of the operator."""
    position: int = 1
    """i: position of the operator in its pipeline, 1 is the first."""
    length: int = 1
    """m: number of operators in the pipeline."""
    fan_out: float = 1.0
    """β: most output items that one input item can cause."""


class SlotPolicyState(msgspec.Struct, frozen=True, kw_only=True):
    """All that a policy remembers of one slot between events."""

    failures: int = 0
    """k: losses of resident state recovered from so far (in the window, if there is one)."""


class EpochApplied(msgspec.Struct, frozen=True, kw_only=True, tag="epoch-applied"):
    """All rows of an epoch are in the resident state; the epoch may be committed next."""

    epoch: int
    divergence: float
    """Distance between resident state and committed backups, in units of the divergence."""
    items: int
    """Rows that the slot took in during this epoch."""


class Recovered(msgspec.Struct, frozen=True, kw_only=True, tag="recovered"):
    """The resident state was lost and has been replaced by the backup's."""

    epoch: int
    """The epoch that the slot is about to run."""


class Flushed(msgspec.Struct, frozen=True, kw_only=True, tag="flushed"):
    """The query is being stopped on purpose: whatever is not durable should become so."""

    epoch: int
    divergence: float


Event = EpochApplied | Recovered | Flushed


class BackUpState(msgspec.Struct, frozen=True, kw_only=True, tag="back-up-state"):
    """Make state durable, worst entries first, until the divergence is at most ``target``."""

    target: float
    cause: Cause


class RecordFailures(msgspec.Struct, frozen=True, kw_only=True, tag="record-failures"):
    """Make the number of failures durable before the slot goes on (AF-Stream 2019 §3.5.2)."""

    failures: int


Instruction = BackUpState | RecordFailures


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
