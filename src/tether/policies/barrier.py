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
    """Take a consistent snapshot of all slots at intervals; after a loss, go back to the newest one.

    Intuition: nothing is written between snapshots. The price is paid after a loss, when the source is
    read again from the position of the snapshot.

    Guarantee: exact, if the source can be read again (ABS 2015 §4). Without feedback no items are
    stored; with feedback, a snapshot contains the feedback items that are on their way.

    Each slot writes one part of a snapshot: what has changed since its part of the newest complete
    snapshot. After a loss, or after a snapshot that was given up, the slot writes its whole state
    instead. So no part depends on a snapshot that does not count.

    Args:
        interval: Distance between the starts of two snapshots.
        by: Unit of the interval.
        mode: "async": the stream continues while parts are written. "sync": no more rows are read from
            the sources until the snapshot is complete (the comparison in ABS 2015 §7).
        patience: Number of intervals after which an incomplete snapshot is given up.
        meanwhile: What the query does after a loss until it is exact again. None: it stops, goes back
            and reads the stream again. "stale": it continues at once, and lost slots use their part of
            the newest snapshot. "skip": it continues at once, and lost slots give no output. With
            "stale" and "skip" its rows are tentative, until a second run, the twin, has read again what
            is missing and takes over (:mod:`tether.protocols.take_over`).
        strategy: How the query and its twin share the cluster (DPC 2005 §5). "process": the twin works
            while the query has nothing to do. "delay": both run. "suspend": the query waits for the
            twin.

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
        """The schedule of this policy."""
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
