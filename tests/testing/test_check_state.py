"""The kit accepts a right class, and names the law that each wrong one breaks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tether.testing import LawBrokenError, check_state, laws

if TYPE_CHECKING:
    import random


class Counters:
    """A right one: counters by name, with the l1 distance."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def state_divergence(self, backup: bytes) -> float:
        return l1(self.backup_state(), backup)

    def backup_state(self) -> bytes:
        return msgspec.json.encode(dict(sorted(self.counts.items())))

    def recover_state(self, image: bytes) -> None:
        self.counts = msgspec.json.decode(image)


def l1(one: bytes, other: bytes) -> float:
    mine, theirs = msgspec.json.decode(one), msgspec.json.decode(other)
    return float(sum(abs(mine.get(k, 0) - theirs.get(k, 0)) for k in mine.keys() | theirs.keys()))


def count(counters: Counters, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 3)):
        name = draw.choice("abcde")
        counters.counts[name] = counters.counts.get(name, 0) + draw.randint(-4, 6)


def test_a_right_class_passes() -> None:
    check_state(Counters, count, distance=l1)


class OneWay(Counters):
    def state_divergence(self, backup: bytes) -> float:
        theirs = msgspec.json.decode(backup)
        return float(sum(max(n - theirs.get(k, 0), 0) for k, n in self.counts.items()))


class OnlyNewKeys(Counters):
    def state_divergence(self, backup: bytes) -> float:
        theirs = msgspec.json.decode(backup)
        return float(sum(abs(n - theirs.get(k, 0)) for k, n in self.counts.items()))


class Half(Counters):
    def state_divergence(self, backup: bytes) -> float:
        return super().state_divergence(backup) / 2


class NotANumber(Counters):
    def state_divergence(self, backup: bytes) -> float:
        return math.nan if "e" in self.counts else super().state_divergence(backup)


class Text(Counters):
    def state_divergence(self, backup: bytes) -> Any:
        return "far"


class Negative(Counters):
    def state_divergence(self, backup: bytes) -> float:
        return -super().state_divergence(backup)


class NeverZero(Counters):
    def state_divergence(self, backup: bytes) -> float:
        return super().state_divergence(backup) + 1


class Squared(Counters):
    def state_divergence(self, backup: bytes) -> float:
        return super().state_divergence(backup) ** 2


class OwnMemory(Counters):
    """Counts changes itself, and forgets to do so when it recovers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def state_divergence(self, backup: bytes) -> float:
        self.asked += 1
        return self.asked * super().state_divergence(backup)


class Merging(Counters):
    def recover_state(self, image: bytes) -> None:
        self.counts.update(msgspec.json.decode(image))


class Adding(Counters):
    def recover_state(self, image: bytes) -> None:
        for name, n in msgspec.json.decode(image).items():
            self.counts[name] = self.counts.get(name, 0) + n


class Forgetful(Counters):
    def backup_state(self) -> bytes:
        return msgspec.json.encode({k: n for k, n in sorted(self.counts.items()) if k != "c"})

    def recover_state(self, image: bytes) -> None:
        self.counts = {k: n + 1 for k, n in msgspec.json.decode(image).items()}


class Emptying(Counters):
    def backup_state(self) -> bytes:
        image = super().backup_state()
        self.counts.pop("a", None)
        return image


class Unsure(Counters):
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Unsure.made += 1
        self.counts = {"a": Unsure.made}


MUTANTS = {
    OneWay: {laws.SYMMETRY},
    OnlyNewKeys: {laws.SYMMETRY},
    Half: {laws.NEVER_TOO_SMALL},
    NotANumber: {laws.DISTANCE},
    Text: {laws.DISTANCE},
    Negative: {laws.DISTANCE},
    NeverZero: {laws.DISTANCE},
    Squared: {laws.TRIANGLE},
    OwnMemory: {laws.FUNCTION},
    Merging: {laws.ROUND_TRIP},
    Adding: {laws.ROUND_TRIP, laws.IDEMPOTENT},
    Forgetful: {laws.ROUND_TRIP},
    Emptying: {laws.IMAGE},
    Unsure: {laws.ROUND_TRIP},
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_wrong_class_is_caught(mutant: Any) -> None:
    with pytest.raises(LawBrokenError) as caught:
        check_state(mutant, count, distance=l1, seed=3)
    assert caught.value.law in MUTANTS[mutant]
    assert mutant.__name__ in str(caught.value)
    assert f"seed {caught.value.seed}" in str(caught.value)


def test_the_seed_repeats_the_failure() -> None:
    with pytest.raises(LawBrokenError) as first:
        check_state(Squared, count, seed=10)
    with pytest.raises(LawBrokenError) as again:
        check_state(Squared, count, seed=first.value.seed, schedules=1)
    assert str(again.value) == str(first.value)


def test_a_shrinking_divergence_is_caught_where_it_may_only_grow() -> None:
    with pytest.raises(LawBrokenError) as caught:
        check_state(Counters, count, increasing=True)
    assert caught.value.law == laws.INCREASING
