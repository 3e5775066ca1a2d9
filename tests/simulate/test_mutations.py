"""Broken on purpose: the checks that pass for the real thing fail for every one of these."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tether.core.thresholds import initial_thresholds
from tether.core.windows import Sliding
from tether.policies.approximate import Approximate
from tether.simulate import Fault, Scenario
from tether.simulate.item_slot import ItemSlot

from .promises import check
from .test_theorems import adversarial, worst_moments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.core.placement import Placement
    from tether.core.thresholds import Thresholds
    from tether.policies.window_effects import WindowedState
    from tether.simulate.item_slot import Step
    from tether.simulate.store import Record


class NeverHalving(Approximate):
    def thresholds(self, state: WindowedState, placement: Placement) -> Thresholds:
        return initial_thresholds(self.budget, placement)


class CommitsBeforeTheBackup(ItemSlot):
    def finish(self, step: Step) -> Iterator[float | None]:
        record = self.to_save(step)
        self.commit(step)
        if record is not None:
            yield from self.write(record)


class DoesNotCountPendingItems(ItemSlot):
    def most_pending(self) -> float:
        return float("inf")


class GoesOnBeforeTheCountIsDurable(ItemSlot):
    def write(self, record: Record) -> Iterator[float | None]:
        if not self.up:
            return
        yield from super().write(record)


class BacksUpTooLittle(ItemSlot):
    def to_save(self, step: Step) -> Record | None:
        return super().to_save(step._replace(backup=None))


class KeepsToItselfWhatAWindowGaveBack(ItemSlot):
    """Uses the larger θ, and leaves the smaller one in the store."""

    def to_save(self, step: Step) -> Record | None:
        record = super().to_save(step)
        if record is None or not record.frame:
            return None
        return replace(record, policy_state=self.told)

    @property
    def told(self) -> WindowedState:
        known = [r.policy_state for r in self.world.log(self).records if r.policy_state is not None]
        return known[-1] if known else self.world.scenario.policy.initial()


class AcceptsAllOutputsAtOnce(ItemSlot):
    def remember(self, policy_state: WindowedState) -> None:
        super().remember(policy_state)
        self.outbox.limit(10_000.0)


def broken(slot_type: type[ItemSlot], scenario: Scenario, faults: list[Fault]) -> None:
    check(scenario, faults)  # the real one keeps every promise in the same history
    with pytest.raises(AssertionError):
        check(scenario, faults, slot_type)


def test_a_policy_that_never_halves_is_found() -> None:
    scenario, faults = adversarial((2000, 30, 30)), worst_moments()
    check(scenario, faults)
    careless = NeverHalving(2000, 30, 30)
    with pytest.raises(AssertionError):
        check(adversarial((0, 0, 0), policy=careless), faults)


def test_a_commit_before_the_backup_is_durable_is_found() -> None:
    broken(CommitsBeforeTheBackup, adversarial((2000, 30, 30)), worst_moments())


def test_not_counting_pending_items_is_found() -> None:
    # Slots die while they have a queue: many items come at once, and each takes long.
    slow = adversarial((1e9, 12, 1000), batch=24, rounds=10)
    faults = [Fault(time=0.0511 + 0.1 * n, kind="slot", target=n % 2) for n in range(8)]
    broken(DoesNotCountPendingItems, slow, faults)


def test_going_on_before_the_count_is_durable_is_found() -> None:
    broken(GoesOnBeforeTheCountIsDurable, adversarial((2000, 30, 30)), worst_moments())


def test_not_backing_up_is_found() -> None:
    broken(BacksUpTooLittle, adversarial((2000, 30, 30)), worst_moments())


def test_a_threshold_given_back_in_memory_only_is_found() -> None:
    policy = Approximate(2000, 30, 30, window=Sliding(0.3))
    scenario = adversarial((0, 0, 0), policy=policy)
    broken(KeepsToItselfWhatAWindowGaveBack, scenario, worst_moments(every=0.2))


def test_sending_more_than_gamma_is_found() -> None:
    scenario = adversarial((1e9, 1e9, 4), fan_out=3)
    faults = [Fault(time=0.0517 + 0.1 * n, kind="slot", target=n % 2) for n in range(8)]
    broken(AcceptsAllOutputsAtOnce, scenario, faults)
