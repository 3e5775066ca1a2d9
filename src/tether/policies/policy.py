"""What a fault-tolerance policy is: a pure function from (state, event) to (state, instructions).

Spark and the simulator execute the same policies. A policy's per-slot state is a small
frozen struct, so it can be stored beside the resident state, sent in a control record, and replayed
in a test. Nothing here reads a clock, draws a random number or touches a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.budget import Budget
    from tether.core.placement import Placement
    from tether.policies.events import Event
    from tether.policies.instructions import Instruction
    from tether.policies.memory import SlotPolicyState
    from tether.policies.recovery import Recovery


class SnapshotSchedule(Protocol):
    """When snapshots begin; what a policy that takes them must say."""

    @property
    def interval(self) -> float:
        """Distance between the beginnings of two snapshots."""
        ...

    @property
    def by(self) -> Literal["epochs", "seconds"]:
        """What it is counted in."""
        ...

    @property
    def mode(self) -> Literal["async", "sync"]:
        """Whether the stream continues while parts are written, or waits."""
        ...

    @property
    def patience(self) -> float:
        """Intervals after which a snapshot that is not complete is given up."""
        ...


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
    def snapshots(self) -> SnapshotSchedule | None:
        """When snapshots of all slots begin; None where it takes none."""
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
