"""Asynchronous barrier snapshots as a policy (ABS 2015), and the stop-the-world kind beside it."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec.structs import replace

from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.core.ids import SnapshotNumber
from tether.policies.base import BasePolicy
from tether.policies.events import BarrierAligned, Event, Recovered
from tether.policies.instructions import Instruction, TakePart
from tether.policies.memory import SlotPolicyState
from tether.policies.recovery import FROM_SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.placement import Placement
    from tether.policies.policy import SnapshotSchedule
    from tether.policies.recovery import Recovery
    from tether.protocols.take_over import Strategy

Mode = Literal["async", "sync"]
By = Literal["epochs", "seconds"]
Meanwhile = Literal["skip", "stale"]


class BarrierState(SlotPolicyState, frozen=True, kw_only=True):
    """What the policy remembers of a slot."""

    part: SnapshotNumber | None = None
    """Newest snapshot that the slot has written a part of: what its next part can build on."""


@dataclass(frozen=True, slots=True)
class Barrier(BasePolicy):
    """Take a consistent snapshot of all slots now and then; after a loss go back to the newest.

    Intuition: between snapshots nothing at all is written. The price is paid after a loss: the
    source is read again from where the snapshot was taken.

    Guarantee: exact, with a source that can be read again (ABS 2015 §4). Acyclic graphs keep no
    items; with feedback, a snapshot holds the feedback items in flight.

    A part builds on the slot's part of the newest complete snapshot and holds what changed since.
    After a snapshot that was given up, or a loss, the next part is a whole image: then a part
    never rests on one that may not count.

    Args:
        interval: Distance between the beginnings of two snapshots.
        by: What it is counted in.
        mode: "async": the stream goes on while parts are written. "sync": nothing more is taken
            from the sources until the snapshot is complete (the comparison of ABS 2015 §7).
        patience: Intervals after which a snapshot that is not complete is given up.
        meanwhile: What the query does after a loss until it is exact again. None: it stops, goes back
            and reads the stream again. "stale": it goes on at once, lost slots from their part of the
            newest snapshot; "skip": lost slots give nothing. Its rows are tentative then, while a
            second run, the twin, reads again what is missing and takes over
            (:mod:`tether.protocols.take_over`).
        strategy: How the two share the cluster (DPC 2005 §5): "process": the twin works while the
            query has nothing to do. "delay": both run. "suspend": the query waits for the twin.

    Example:
        >>> from tether.core.placement import Placement
        >>> policy = Barrier(10)
        >>> aligned = BarrierAligned(epoch=20, number=2, complete=1)
        >>> fresh, asked = policy.step(policy.initial(), aligned, Placement())
        >>> asked
        (TakePart(number=2, onto=None, wait=False),)
        >>> policy.step(fresh, BarrierAligned(epoch=30, number=3, complete=2), Placement())[1]
        (TakePart(number=3, onto=2, wait=False),)
    """

    interval: float = 10
    _: KW_ONLY
    by: By = "epochs"
    mode: Mode = "async"
    patience: float = 10.0
    meanwhile: Meanwhile | None = None
    strategy: Strategy = "delay"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("by", ("epochs", "seconds")),
            ("mode", ("async", "sync")),
            ("meanwhile", ("stale", "skip", None)),
            ("strategy", ("delay", "process", "suspend")),
        ):
            if getattr(self, name) not in allowed:
                raise BadValueError(
                    f"{name}={getattr(self, name)!r} cannot be used.",
                    why=f"It is one of {', '.join(map(repr, allowed))}.",
                    do=f"Write for example Barrier(10, {name}={allowed[0]!r}).",
                )
        if self.by == "epochs":
            interval: float = count("interval", self.interval, unit="epochs")
        else:
            interval = amount("interval", self.interval, unit="seconds", zero=None, infinite=None)
        patience = amount("patience", self.patience, unit="intervals", zero=None, infinite="never")
        object.__setattr__(self, "interval", interval)
        object.__setattr__(self, "patience", patience)
        if self.patience < 1:
            raise BadValueError(
                f"patience={self.patience:g} is less than an interval.",
                why="No snapshot could ever last until the next one begins.",
                do="Give 1 or more.",
            )

    state_type: ClassVar[type[BarrierState]] = BarrierState
    about: ClassVar[str] = (
        "A snapshot of all slots every interval; after a loss the source is read again from the last "
        "complete one: exact."
    )

    @property
    def name(self) -> str:
        """Word by which the policy is known."""
        return "barrier"

    @property
    def recovery(self) -> Recovery:
        """Slots go back to the newest complete snapshot; the source is read again from there."""
        return FROM_SNAPSHOT

    @property
    def snapshots(self) -> SnapshotSchedule:
        """As this policy says."""
        return self

    def describe(self) -> Mapping[str, object]:
        """Settings as plain values."""
        patience = self.patience if math.isfinite(self.patience) else "inf"
        return {
            "policy": self.name,
            "interval": self.interval,
            "by": self.by,
            "mode": self.mode,
            "patience": patience,
        }

    def threshold(self, state: BarrierState, placement: Placement) -> float:  # noqa: ARG002
        """Infinite: what is not in a snapshot is read again, however much it is."""
        return math.inf

    def step(
        self,
        state: BarrierState,
        event: Event,
        placement: Placement,  # noqa: ARG002
    ) -> tuple[BarrierState, tuple[Instruction, ...]]:
        """Take one event in; give the new state and what the runtime must do, in order."""
        if isinstance(event, BarrierAligned):
            rests = state.part is not None and state.part == event.complete
            asked = TakePart(
                number=event.number,
                onto=state.part if rests else None,
                wait=self.mode == "sync",
            )
            return replace(state, part=event.number), (asked,)
        if isinstance(event, Recovered):
            # What the restored copy counts as changed is not known to the backup: write all.
            state = replace(state, part=None)
        return self.usual(state, event)
