"""Snapshots for all slots, copies of the few that matter: partially active replication (PPA 2016)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.planning.planners import PLANNERS
from tether.policies.barrier import Barrier, BarrierState
from tether.policies.base import BasePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.placement import Placement
    from tether.planning.planners import PlannerName
    from tether.policies.barrier import Meanwhile
    from tether.policies.events import Event
    from tether.policies.instructions import Instruction
    from tether.policies.policy import CopyChoice
    from tether.policies.recovery import Recovery


@dataclass(frozen=True, slots=True)
class PartiallyActive(BasePolicy):
    """Copy the slots that matter most; take snapshots of all, for the others.

    Intuition: a copy takes the same rows in as its slot, on another executor, and is silent. When the
    executor of the slot dies the copy speaks, in the same epoch, and nothing is read again. Slots
    without a copy go back to the newest snapshot, as under ``Barrier``.

    Guarantee: exact, as ``Barrier``; while every slot that an executor held has a copy elsewhere, losing
    that executor takes nobody back.

    Args:
        copies: How many slots get a copy.
        share: The same as a part of all slots, from 0 to 1.
        planner: Who chooses them; see ``tether.planning.plan``.
        snapshots: When snapshots are taken.
        meanwhile: What slots that are lost without a copy do until they are recovered, as for
            ``Barrier``. None: the whole query goes back. "skip": they give nothing; "stale": they go on
            from the newest snapshot. All others, copies among them, go on at once; rows are
            tentative, with the output fidelity of what is alive beside them, and are corrected.
        standby: Keep copies together on this number of executors, from which no slot speaks, so that
            they survive a failure of all others at once. By default a copy is on any executor but its
            slot's.
        adapt: Measure the rates of slots as the query runs, and move copies, one at a time, when a new
            plan has at least this much more fidelity (from 0 to 1). None: the plan stays.
        rates: Rows per second out of the slots of operators that read the source, by operator: one
            number, or one for each slot. By default all rates are equal.

    Example:
        >>> PartiallyActive(share=0.5, snapshots=Barrier(20)).describe()["interval"]
        20
    """

    _: KW_ONLY
    copies: int | None = None
    share: float | None = None
    planner: PlannerName = "structure-aware"
    snapshots: Barrier = field(default_factory=Barrier)
    meanwhile: Meanwhile | None = None
    standby: int = 0
    adapt: float | None = None
    rates: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if (self.copies is None) == (self.share is None):
            raise BadValueError(
                "PartiallyActive takes either copies or share.",
                do="Write for example PartiallyActive(copies=4), or PartiallyActive(share=0.5).",
            )
        if self.copies is not None:
            count("copies", self.copies, unit="copies")
        elif (
            amount("share", self.share, unit="slots, as a part of all", zero=None, infinite=None)
            > 1
        ):
            raise BadValueError(
                f"share={self.share:g} is more than all slots.", do="Give at most 1."
            )
        if self.planner not in PLANNERS:
            raise BadValueError(
                f"planner={self.planner!r} is not known.", do=f"Use one of {list(PLANNERS)}."
            )
        if not isinstance(self.snapshots, Barrier):
            raise BadValueError(
                f"snapshots={self.snapshots!r} is no schedule of snapshots.",
                do="Write for example snapshots=Barrier(10).",
            )
        if self.meanwhile is None:
            object.__setattr__(self, "meanwhile", self.snapshots.meanwhile)
        object.__setattr__(self, "snapshots", replace(self.snapshots, meanwhile=self.meanwhile))
        count("standby", self.standby, unit="executors", least=0)
        if self.adapt is not None:
            gain = amount(
                "adapt", self.adapt, unit="fidelity", zero="whatever it gains", infinite=None
            )
            if gain >= 1:
                raise BadValueError(
                    f"adapt={self.adapt:g} can never be gained.",
                    why="Fidelity is at most 1.",
                    do="Give for example 0.05.",
                )

    state_type: ClassVar[type[BarrierState]] = BarrierState
    about: ClassVar[str] = (
        "Copies of some slots on other executors speak when those die; a snapshot of all every "
        "interval, to which slots without a copy go back: exact."
    )

    @property
    def name(self) -> str:
        """Word by which the policy is known."""
        return "partially-active"

    @property
    def copying(self) -> CopyChoice:
        """The slots that this policy chooses."""
        return self

    @property
    def recovery(self) -> Recovery:
        """Slots without a copy go back to the newest complete snapshot."""
        return self.snapshots.recovery

    def describe(self) -> Mapping[str, object]:
        """Settings that give the backup its meaning: copies are not part of it, and may change."""
        return {**self.snapshots.describe(), "policy": self.name}

    def threshold(self, state: BarrierState, placement: Placement) -> float:
        """Infinite, as that of the snapshots."""
        return self.snapshots.threshold(state, placement)

    def step(
        self, state: BarrierState, event: Event, placement: Placement
    ) -> tuple[BarrierState, tuple[Instruction, ...]]:
        """The step of the policy that takes the snapshots."""
        return self.snapshots.step(state, event, placement)
