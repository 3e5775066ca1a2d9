"""Checks that a fault-tolerance policy keeps the laws that the engine relies on."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.graph import SlotId
from tether.core.ids import Epoch, Slot, SnapshotNumber
from tether.core.placement import Placement
from tether.policies.events import (
    BarrierAligned,
    EpochApplied,
    Event,
    Flushed,
    Recovered,
    RowsReady,
    WindowEnd,
)
from tether.policies.instructions import BackUpState, LogRows, RecordFailures, TakePart
from tether.policies.memory import SlotPolicyState
from tether.simulate.epoch_faults import SHARES, EpochFault
from tether.simulate.epoch_query import EpochScenario
from tether.simulate.epochs import simulate_epochs
from tether.testing.laws import broken

if TYPE_CHECKING:
    from tether.policies.policy import Policy

PURE = "a step depends on nothing but the policy, its state and the event"
STORED = "the state survives being stored and read back, and has the type that the policy names"
KNOWN = "a policy asks for nothing but the instructions that the engine knows"
COUNTED = "every failure is counted, and asked to be recorded, where state is backed up"
WITHIN_THETA = "a divergence above θ asks for a backup to θ or less, and waits for it"
THETA_FALLS = "θ is a number of at least 0, and no failure makes it larger"
KEEPS = "after any faults the answer is within what was promised, and within what was told"


def check_policy(policy: Policy, *, schedules: int = 20, seed: int = 1) -> None:
    """Check a policy: its steps by themselves, then the engine under it, through random faults.

    The engine is the one that runs on Spark, here with a few slots in this process
    (:mod:`tether.simulate.epochs`): tasks are killed, state is lost, drivers die.

    Args:
        policy: The policy.
        schedules: How many random schedules of events, and of faults, to try.
        seed: Of the schedules.

    Raises:
        LawBrokenError: The policy broke a law; says which one, and the seed that shows it again.

    Example:
        >>> from tether import Approximate, MiniBatch
        >>> check_policy(MiniBatch(), schedules=2)
        >>> check_policy(Approximate(100), schedules=2)
    """
    for number in range(schedules):
        _check_steps(policy, seed + number)
    for number in range(schedules):
        _check_run(policy, seed + number)


def _check_steps(policy: Policy, seed: int) -> None:
    dice, place, who = Random(seed), Placement(copies=2), policy.name  # noqa: S311 - not for secrets
    state: Any = policy.initial()
    for epoch in map(Epoch, range(12)):
        event = _event(dice, epoch)
        theta = policy.threshold(state, place)
        if math.isnan(theta) or theta < 0:
            raise broken(who, THETA_FALLS, seed, f"θ is {theta}.")
        after, asked = policy.step(state, event, place)
        if policy.step(state, event, place) != (after, asked):
            raise broken(who, PURE, seed, f"{event} gave two different answers.")
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(after), type=policy.state_type)
        if stored != after or not isinstance(after, SlotPolicyState):
            raise broken(who, STORED, seed, f"{after} was read back as {stored}.")
        for one in asked:
            if not isinstance(one, BackUpState | LogRows | RecordFailures | TakePart):
                raise broken(who, KNOWN, seed, f"It asked for {one!r}.")
        if isinstance(event, Recovered):
            _check_counted(policy, state, after, asked, seed)
        if isinstance(event, EpochApplied) and event.divergence > policy.threshold(after, place):
            waits = [one for one in asked if isinstance(one, BackUpState) and one.wait]
            left = waits[-1].target + waits[-1].rounding if waits else math.inf
            if not waits or left > policy.threshold(after, place):
                raise broken(who, WITHIN_THETA, seed, f"{event} asked for {asked}.")
        state = after


def _check_counted(policy: Policy, state: Any, after: Any, asked: Any, seed: int) -> None:
    place, who = Placement(copies=2), policy.name
    recorded = [one for one in asked if isinstance(one, RecordFailures)]
    if after.failures != state.failures + 1:
        raise broken(who, COUNTED, seed, f"{state.failures} became {after.failures} failures.")
    if policy.keeps_backups and (not recorded or recorded[-1].failures != after.failures):
        raise broken(who, COUNTED, seed, f"{after.failures} failures asked for {asked}.")
    if policy.threshold(after, place) > policy.threshold(state, place):
        raise broken(who, THETA_FALLS, seed, "It grew with a failure.")


def _event(dice: Random, epoch: Epoch) -> Event:
    far, items = dice.choice([0.0, 1.0, dice.uniform(0, 1e6)]), dice.randrange(100)
    events: list[Event] = [
        EpochApplied(epoch=epoch, divergence=far, items=items),
        EpochApplied(
            epoch=epoch, divergence=far, items=items, newest_event_time=1.0 * epoch, watermark=0
        ),
        Recovered(epoch=epoch),
        WindowEnd(epoch=epoch, end=float(epoch)),
        Flushed(epoch=epoch, divergence=far),
        RowsReady(epoch=epoch, items=items),
        BarrierAligned(
            epoch=epoch,
            number=SnapshotNumber(epoch),
            complete=SnapshotNumber(epoch - 1) if epoch else None,
        ),
    ]
    return dice.choice(events)


def _check_run(policy: Policy, seed: int) -> None:
    dice = Random(seed)  # noqa: S311
    scenario = EpochScenario(
        copies=2, operators=2, epochs=5, policy=policy, slots_per_node=2, seed=seed
    )
    faults = [
        EpochFault(
            dice.choice(list(SHARES)),
            Epoch(dice.randrange(1, scenario.epochs)),
            SlotId(dice.choice(scenario.names), Slot(dice.randrange(scenario.copies))),
        )
        for _ in range(dice.randrange(6))
    ]
    report = simulate_epochs(scenario, faults=faults)
    if report.violations:
        raise broken(policy.name, KEEPS, seed, f"{report.violations[0]} after {faults}")
