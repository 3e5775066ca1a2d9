"""A small world in which an adversary loses slots at the worst moments, and books are kept exactly.

The adversary fills each slot's divergence up to θ, has backups end at just their target and round off
all that they may, lets background backups never finish, and crashes recoveries before and after the
failure is recorded.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.core.amplification import Amplification, amplification_of
from tether.core.placement import Placement
from tether.core.thresholds import outputs_of_item
from tether.policies.events import EpochApplied, Event, Recovered, WindowEnd
from tether.policies.instructions import BackUpState, Instruction, RecordFailures
from tether.policies.window_effects import WindowedState

if TYPE_CHECKING:
    from tether.core.windows import Hopping
    from tether.policies.approximate import Approximate


class Toll(NamedTuple):
    """What one loss took, and the place in the stream where it hurts."""

    position: float
    state: Fraction
    items: Fraction
    unacked: Fraction


class Now(NamedTuple):
    """Where the stream is."""

    epoch: int
    newest: float
    watermark: float


class Slot:
    """One slot under ``Approximate``: live things, durable things, and what was lost."""

    def __init__(self, policy: Approximate, placement: Placement) -> None:
        self.policy, self.placement = policy, placement
        self.state = self.durable = policy.initial()
        self.divergence = 0.0
        self.rows = 0
        self.losses: list[Toll] = []

    @property
    def theta(self) -> float:
        return self.policy.threshold(self.state, self.placement)

    def run(self, now: Now, drift: float | None, rows: int) -> None:
        """One epoch. A drift of None brings the divergence to just θ."""
        self.divergence = self.theta if drift is None else self.divergence + drift
        self.rows += rows
        event = EpochApplied(
            epoch=now.epoch,
            divergence=self.divergence,
            items=rows,
            newest_event_time=now.newest,
            watermark=now.watermark,
        )
        for one in self.take(event):
            if isinstance(one, RecordFailures):
                self.durable = stored(self.state)
            elif isinstance(one, BackUpState) and one.wait:
                self.divergence = one.target + one.rounding
        assert self.divergence <= self.theta, "more than θ was carried into a committed epoch"

    def end_window(self, now: Now, end: float) -> None:
        for one in self.take(WindowEnd(epoch=now.epoch, end=end)):
            assert isinstance(one, RecordFailures)
            self.durable = stored(self.state)

    def lose(self, now: Now, position: float, crashes: list[bool], *, known: bool) -> None:
        """Lose the live state; each crash hits the recovery, True: after the number was stored."""
        limits = self.policy.thresholds(self.durable, self.placement)
        assert self.divergence <= limits.theta, "a loss costs more than what is durable says"
        weight = outputs_of_item(self.placement)
        items = (Fraction(part) * weight for part in (limits.l, limits.gamma))
        self.losses.append(Toll(position, Fraction(self.divergence), *items))
        self.divergence = 0.0
        before = self.durable.failures
        event = Recovered(epoch=now.epoch + 1, newest_event_time=now.newest if known else None)
        for was_stored in [*crashes, True]:
            self.state = self.durable
            asked = self.take(event)
            assert [type(one) for one in asked] == [RecordFailures]
            assert isinstance(asked[0], RecordFailures)
            if was_stored:
                assert asked[0].failures == self.state.failures
                self.durable = stored(self.state)
        assert self.durable.failures == before + 1 + sum(crashes)

    def take(self, event: Event) -> tuple[Instruction, ...]:
        self.state, asked = self.policy.step(self.state, event, self.placement)
        return asked


def stored(state: WindowedState) -> WindowedState:
    """The state as it comes back from a store."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=WindowedState)


def chain(length: int, gain: float) -> Amplification:
    """Operators in a row, each of which enlarges the errors of the one before by ``gain``."""
    names = [str(number) for number in range(1, length + 1)]
    return amplification_of(dict.fromkeys(names, 1.0), dict.fromkeys(pairwise(names), gain))


def query(
    policy: Approximate, *, copies: list[int], fan_out: float, combine: str, gain: float = 1.0
) -> list[Slot]:
    """A pipeline with so many copies of each of its operators."""
    spread = chain(len(copies), gain)
    places = [
        Placement(
            copies=n,
            position=position,
            length=len(copies),
            fan_out=fan_out,
            errors_of_copies=combine,  # type: ignore[arg-type]
        )
        for position, n in enumerate(copies, 1)
    ]
    return [
        Slot(policy, spread.placed(str(place.position), place, shared=True))
        for place in places
        for _ in range(place.copies)
    ]


def state_error(slots: list[Slot], counts: object = lambda _: True, gain: float = 1.0) -> Fraction:
    """The most that any operator's state can be wrong by, of the losses that count."""
    by_operator: dict[int, list[Fraction]] = {}
    for slot in slots:
        lost = sum((t.state for t in slot.losses if counts(t)), Fraction(0))  # type: ignore[operator]
        by_operator.setdefault(slot.placement.position, []).append(lost)
    largest = slots[0].placement.errors_of_copies == "max"
    worst = error = Fraction(0)
    for _, lost in sorted(by_operator.items()):
        error = error * Fraction(gain) + (max(lost) if largest else sum(lost, Fraction(0)))
        worst = max(worst, error)
    return worst


def advance(slots: list[Slot], before: Now, by: tuple[float, float]) -> Now:
    """The next epoch, with its event times; neither they nor the watermark ever fall."""
    newest = before.newest + by[0]
    watermark = max(before.watermark, newest - by[1])
    return Now(before.epoch + 1, newest, watermark)


def close_windows(slot: Slot, window: Hopping, before: Now, now: Now, rows_before: int) -> None:
    """Send a slot the ends of the hopping windows that an epoch completed."""
    span = {
        "seconds": (before.watermark, now.watermark),
        "epochs": (before.epoch + 1, now.epoch + 1),
        "items": (rows_before, slot.rows),
    }[window.by]
    for end in window.ends(after=span[0], upto=span[1]):
        slot.end_window(now, end)
