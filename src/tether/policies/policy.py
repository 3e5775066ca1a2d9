"""What a fault-tolerance policy is: a pure function from (state, event) to (state, instructions).

Spark and the simulator execute the same policies. A policy's per-slot state is a small
frozen struct, so it can be stored beside the resident state, sent in a control record, and replayed
in a test. Nothing here reads a clock, draws a random number or touches a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from tether.core.ids import Epoch, Failures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.budget import Budget
    from tether.core.placement import Placement
    from tether.core.windows import Window
    from tether.planning.planners import PlannerName
    from tether.policies.events import Event
    from tether.policies.instructions import Instruction
    from tether.policies.memory import SlotPolicyState
    from tether.policies.recovery import Recovery
    from tether.protocols.consistency import Handling
    from tether.protocols.take_over import Strategy


class SnapshotSchedule(Protocol):
    """The schedule of snapshots, for policies that take them."""

    @property
    def interval(self) -> float:
        """Distance between the starts of two snapshots."""
        ...

    @property
    def by(self) -> Literal["epochs", "seconds"]:
        """Unit of the interval."""
        ...

    @property
    def mode(self) -> Literal["async", "sync"]:
        """Whether the stream continues while parts are written, or waits."""
        ...

    @property
    def patience(self) -> float:
        """Intervals after which a snapshot that is not complete is given up."""
        ...

    @property
    def meanwhile(self) -> Literal["skip", "stale"] | None:
        """What the query does after a loss until a twin has taken over; None: it goes back itself."""
        ...

    @property
    def strategy(self) -> Strategy:
        """How the query and its twin share the cluster."""
        ...


class CopyChoice(Protocol):
    """Which slots get a copy, for policies that have copies."""

    @property
    def copies(self) -> int | None:
        """Number of copies."""
        ...

    @property
    def share(self) -> float | None:
        """The same as a fraction of all slots."""
        ...

    @property
    def planner(self) -> PlannerName:
        """Name of the planner that chooses them."""
        ...

    @property
    def standby(self) -> int:
        """Number of executors that hold copies only; 0: a copy may be on any executor but its slot's."""
        ...

    @property
    def adapt(self) -> float | None:
        """The fidelity that moving copies must gain; None: copies are not moved."""
        ...

    @property
    def rates(self) -> Mapping[str, float | tuple[float, ...]]:
        """Rows per second out of the slots of operators that read the source."""
        ...


class Availability(Protocol):
    """How a query answers although an input is missing; see :mod:`tether.policies.available`."""

    @property
    def handling(self) -> Handling:
        """The policy's settings for the consistency manager."""
        ...

    @property
    def stabilization(self) -> Literal["process", "delay", "suspend"]:
        """What happens to new rows while late ones are corrected."""
        ...

    @property
    def reconcile(self) -> Literal["checkpoint", "undo"]:
        """How the state from before the first tentative answer is kept."""
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
        """The strategy by which a slot recovers from a loss."""
        ...

    @property
    def snapshots(self) -> SnapshotSchedule | None:
        """When snapshots of all slots begin; None where it takes none."""
        ...

    @property
    def heal(self) -> SnapshotSchedule | None:
        """How often all slots save their whole state, so that a twin can make losses good; or None."""
        ...

    @property
    def heals_by_itself(self) -> bool:
        """Whether a twin starts after every loss; otherwise only when it is asked for."""
        ...

    @property
    def availability(self) -> Availability | None:
        """How rows are processed before all inputs have come; None where they are not."""
        ...

    @property
    def copying(self) -> CopyChoice | None:
        """Which slots get a copy; None where none does."""
        ...

    def is_exact_point(self, epoch: Epoch) -> bool:
        """Whether all slots save their whole state at the end of an epoch."""
        ...

    @property
    def budget(self) -> Budget:
        """What the policy promises: the most that all failures together may cost."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Settings as plain values, for the manifest's fingerprint."""
        ...

    @property
    def window(self) -> Window | None:
        """How much of the stream an answer covers; None: all of it."""
        ...

    @property
    def state_type(self) -> type[SlotPolicyState]:
        """Type of what it remembers of a slot between events."""
        ...

    @property
    def about(self) -> str:
        """A one-sentence description; empty for policies that are explained by their thresholds."""
        ...

    def initial(self) -> Any:
        """State of a slot that has never failed."""
        ...

    def resumed(self, losses: Failures, items: int) -> Any:
        """State of a slot that was under other terms until now.

        All losses so far count as failures, so that the budget pays for them too as far as it can.
        Their positions in the stream are dropped, because they may be in another window's unit: they
        count until a whole window has passed.

        Args:
            losses: How many losses of state the slot has had, under whatever terms.
            items: Rows that it has taken in, as far as that is known.
        """
        ...

    def most_lost_items(self, failures: Failures, placement: Placement) -> float:
        """l: the number of items in flight that may be lost after this number of failures."""
        ...

    def threshold(self, state: Any, placement: Placement) -> float:
        """θ: the largest divergence that a slot may carry into a committed epoch now."""
        ...

    def step(
        self, state: Any, event: Event, placement: Placement
    ) -> tuple[Any, tuple[Instruction, ...]]:
        """Take one event in; give the new state and what the runtime must do, in order."""
        ...
