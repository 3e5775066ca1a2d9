"""AF-Stream's policy: back state up only where it has drifted too far."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

from tether.core.budget import Budget
from tether.core.checks import amount
from tether.core.errors import BadValueError
from tether.core.ids import Epoch, Failures
from tether.core.thresholds import Thresholds, after_failures, initial_thresholds, whole_share
from tether.core.windows import Decaying, Window
from tether.policies.barrier import Barrier
from tether.policies.base import BasePolicy
from tether.policies.events import EpochApplied, Event, Recovered, WindowEnd
from tether.policies.instructions import BackUpState, Instruction, RecordFailures
from tether.policies.recovery import EMPTY, FROM_BACKUP
from tether.policies.window_effects import WindowedState, after_epoch, after_loss, after_window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.placement import Placement
    from tether.policies.recovery import Recovery


@dataclass(frozen=True, slots=True)
class Approximate(BasePolicy):
    """Back up a slot only when its divergence is above θ; the error always stays within the budget.

    Intuition: a small distance from the last backup is not worth a write, if losing it in every slot,
    in any number of failures, costs no more in total than the user allows.

    Guarantee (AF-Stream 2019 §3.5; α, β as in ``Budget``):

    - the state's error is at most ``max_state_error`` + ``max_lost_items``·α, and lost outputs at
      most ``max_unacked_items`` + ``max_lost_items``·β, for any number of failures of any slots;
      in any one window, if there is one (for a decaying one see ``Decaying``);
    - without a failure the answer is exact.

    If several operators share the budget, the guarantee holds for the state of each of them, provided
    that it is known how an error of one operator grows in the next (:mod:`tether.core.amplification`).
    If that is not known, the guarantee covers only what each operator itself loses.

    If Spark can read the source again, no items are ever lost, and only ``max_state_error`` matters.

    Args:
        max_state_error: Θ, in units of the state's divergence. 0: exact. inf: never backed up.
        max_lost_items: L, in items; none by default.
        max_unacked_items: Γ, in items; none by default.
        window: The part of the stream that an answer covers; by default all of it.
        early: Fraction of θ at which a backup starts in the background, so that an epoch rarely has to
            wait for one. With 1, the default, a backup starts only when it is required.
        backup_target: Fraction of θ that a backup reduces the divergence to. Just below 1, the next
            backup would be needed at once. With 0, a backup writes every changed entry, although most
            of them have changed little. With 0.5, the default, it writes the entries that have changed
            most, often only a few, and half of θ is free again.
        rounding: Fraction of θ by which floats may be rounded in backups, so that they take fewer
            bytes; 0, the default, writes them as they are. What is rounded off counts as divergence from
            then on: θ = rounding + drift, and nothing else of the guarantee changes.
        heal: ``Barrier(interval)``: after each interval all slots save their whole state, so that there
            is an exact state to go back to. After a loss a second run, the twin, starts from it in the
            background and reads the stream again. When the twin takes over, nothing is lost any more:
            the spent error is 0, and θ has its full value again (:mod:`tether.protocols.take_over`).
            This needs a source that can be read again.
        heal_on: "loss": a twin starts after every loss. "demand": only when ``query.heal()`` is called,
            so that the hour and the load are yours to choose. Until then the bound covers what was lost.

    Example:
        >>> from tether.core.placement import Placement
        >>> policy = Approximate(1000)
        >>> place = Placement(copies=5)
        >>> fresh = policy.initial()
        >>> policy.threshold(fresh, place)
        100.0
        >>> policy.step(fresh, EpochApplied(epoch=1, divergence=90.0, items=5), place)[1]
        ()
        >>> policy.step(fresh, EpochApplied(epoch=2, divergence=101.0, items=5), place)[1]
        (BackUpState(target=50.0, cause='theta', wait=True, rounding=0.0),)
        >>> failed, _ = policy.step(fresh, Recovered(epoch=3), place)
        >>> policy.threshold(failed, place)
        50.0
    """

    max_state_error: float
    max_lost_items: float = 0.0
    max_unacked_items: float = 0.0
    _: KW_ONLY
    window: Window | None = None
    early: float = 1.0
    backup_target: float = 0.5
    rounding: float = 0.0
    heal: Barrier | None = None
    heal_on: Literal["loss", "demand"] = "loss"

    def __post_init__(self) -> None:
        budget = self.budget
        for name in ("max_state_error", "max_lost_items", "max_unacked_items"):
            object.__setattr__(self, name, getattr(budget, name))
        for name in ("early", "backup_target", "rounding"):
            value = amount(name, getattr(self, name), unit="parts of θ", zero="none", infinite=None)
            object.__setattr__(self, name, value)
        if not self.backup_target + self.rounding < self.early <= 1:
            raise BadValueError(
                f"early={self.early:g}, backup_target={self.backup_target:g} and "
                f"rounding={self.rounding:g} do not fit.",
                why="A backup must start by θ (early at most 1), and end below where it starts, with "
                "what it rounds off.",
                do="Choose backup_target + rounding < early <= 1.",
            )
        if self.window is not None and not isinstance(self.window, Window):
            raise BadValueError(
                f"window={self.window!r} is not a window.",
                why=f"It is a {type(self.window).__name__}.",
                do="Give Hopping(…), Sliding(…), Decaying(…) or None.",
            )

        if self.heal is not None and not (
            isinstance(self.heal, Barrier) and self.heal.by == "epochs" and self.keeps_backups
        ):
            raise BadValueError(
                f"heal={self.heal!r} cannot be used.",
                why="An exact state is saved every so many epochs, and only where backups are kept.",
                do="Give Barrier(30), say, and a finite max_state_error.",
            )
        if self.heal_on not in ("loss", "demand") or (self.heal_on != "loss" and self.heal is None):
            raise BadValueError(
                f"heal_on={self.heal_on!r} cannot be used with heal={self.heal!r}.",
                why="It says when a query that heals does so.",
                do="Give heal=Barrier(30), say, and heal_on='loss' or 'demand'.",
            )

    state_type: ClassVar[type[WindowedState]] = WindowedState

    @property
    def name(self) -> str:
        """Word by which the policy is known."""
        return "approximate"

    @property
    def heals_by_itself(self) -> bool:
        """Whether a twin starts after every loss."""
        return self.heal_on == "loss"

    @property
    def keeps_backups(self) -> bool:
        """Whether state is ever backed up: not with an infinite ``max_state_error``."""
        return math.isfinite(self.max_state_error)

    @property
    def recovery(self) -> Recovery:
        """From the backup; the bound covers the rest. Without backups, from nothing."""
        return FROM_BACKUP if self.keeps_backups else EMPTY

    @property
    def budget(self) -> Budget:
        """What all failures together may cost."""
        return Budget(
            max_state_error=self.max_state_error,
            max_lost_items=self.max_lost_items,
            max_unacked_items=self.max_unacked_items,
        )

    def describe(self) -> Mapping[str, object]:
        """Settings as plain values; an infinite one is the word "inf", which JSON can hold."""
        window = self.window
        return {
            "policy": self.name,
            "max_state_error": _plain(self.max_state_error),
            "max_lost_items": _plain(self.max_lost_items),
            "max_unacked_items": _plain(self.max_unacked_items),
            "window": window and window.describe(),
            "early": self.early,
            "backup_target": self.backup_target,
            # Not told where it is off: then backups of before, which do not name it, fit.
            **({"rounding": self.rounding} if self.rounding else {}),
        }

    def thresholds(self, state: WindowedState, placement: Placement) -> Thresholds:
        """θ, l and γ of a slot now: what one failure now can lose at most."""
        return _thresholds(self, state.failures, placement)

    def threshold(self, state: WindowedState, placement: Placement) -> float:
        """θ: the largest divergence that the slot may carry into a committed epoch now."""
        return self.thresholds(state, placement).theta

    def most_lost_items(self, failures: Failures, placement: Placement) -> float:
        """l: the number of items that may be lost after this number of failures."""
        return _thresholds(self, failures, placement).l if self.keeps_backups else math.inf

    def step(
        self, state: WindowedState, event: Event, placement: Placement
    ) -> tuple[WindowedState, tuple[Instruction, ...]]:
        """Take one event in; give the new state and what the runtime must do, in order."""
        if isinstance(event, EpochApplied):
            before, state = state, after_epoch(self.window, state, event)
            backup = self._backup(event.divergence, self.threshold(state, placement))
            if self.is_exact_point(event.epoch):
                backup = (BackUpState(target=0.0, cause="snapshot"),)
            return state, (*_given_back(before, state), *backup)
        if isinstance(event, Recovered):
            state = after_loss(self.window, state, event)
            return state, (RecordFailures(failures=state.failures),)
        if isinstance(event, WindowEnd):
            before, state = state, after_window(self.window, state, event)
            return state, _given_back(before, state)
        return self.usual(state, event)

    def is_exact_point(self, epoch: Epoch) -> bool:
        """Whether all slots save all that they have at the end of an epoch.

        Example:
            >>> [e for e in range(7) if Approximate(9, heal=Barrier(3)).is_exact_point(e)]
            [0, 3, 6]
        """
        return self.heal is not None and epoch % int(self.heal.interval) == 0

    def _backup(self, divergence: float, theta: float) -> tuple[Instruction, ...]:
        if math.isnan(divergence):
            # Nothing is known of the drift, so nothing less than a full backup is safe.
            return (BackUpState(target=0.0, cause="theta"),)
        if divergence <= self.early * theta:
            return ()
        target = self.backup_target * theta
        return (
            BackUpState(
                target=target,
                cause="theta",
                wait=divergence > theta,
                rounding=self.rounding * theta,
            ),
        )


@lru_cache(maxsize=4096)
def _thresholds(policy: Approximate, failures: Failures, placement: Placement) -> Thresholds:
    # Asked for at every epoch of every slot, and seldom another than before.
    if isinstance(policy.window, Decaying):
        return whole_share(policy.budget, placement)
    return after_failures(initial_thresholds(policy.budget, placement), failures)


def _given_back(before: WindowedState, after: WindowedState) -> tuple[RecordFailures, ...]:
    """A window gave θ back. A loss is priced by the θ that is durable, so that must grow first."""
    changed = after.failures != before.failures
    return (RecordFailures(failures=after.failures),) * changed


def _plain(number: float) -> float | str:
    return number if math.isfinite(number) else "inf"
