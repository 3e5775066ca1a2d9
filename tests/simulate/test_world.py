"""The simulator itself: deterministic, exact without failures, and honest about what it models."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tether.core.errors import BadValueError
from tether.core.windows import Decaying, Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.simulate import Fault, Scenario, Timing, World, draw_faults, simulate
from tether.simulate.clock import Clock
from tether.simulate.faults import SHARES
from tether.simulate.item_recovery import readable_failures


def scenario(**changes: object) -> Scenario:
    given = {"copies": 4, "policy": Approximate(400, 200, 100), "slots_per_node": 2, **changes}
    return Scenario(**given)  # type: ignore[arg-type]


def test_events_of_one_time_come_in_the_order_of_asking() -> None:
    clock, seen = Clock(), []
    for number in range(5):
        clock.at(1.0, seen.append, number)
    clock.at(0.5, lambda: clock.at(0.1, seen.append, "past"))
    clock.run()
    assert seen == ["past", 0, 1, 2, 3, 4]
    assert clock.now == 1.0


@pytest.mark.parametrize("operators", [1, 3])
@pytest.mark.parametrize("kind", ["vector", "table"])
def test_without_failures_the_answer_is_exact(operators: int, kind: str) -> None:
    report = simulate(scenario(operators=operators, kind=kind, fan_out=2))
    assert report.violations == ()
    assert report.state_error == (0.0,) * operators
    assert (report.lost_outputs, report.losses) == (0, 0)


def test_a_seed_gives_the_same_run_and_another_another() -> None:
    def figures(seed: int) -> dict[str, object]:
        report = simulate(scenario(seed=seed, operators=2), failures=30)
        return {**dataclasses.asdict(report), "wall_seconds": 0, "scenario": 0}

    assert figures(3) == figures(3)
    assert figures(3) != figures(4)


@pytest.mark.parametrize("kind", SHARES)
def test_every_kind_of_fault_does_what_it_says(kind: str) -> None:
    setting = scenario(nodes_per_rack=2, policy=Approximate(60, 40, 40), rounds=30)
    faults = [
        Fault(time=at, kind=kind, target=at_slot, outcome=outcome)  # type: ignore[arg-type]
        for at, at_slot, outcome in [(0.3, 1, "torn"), (0.7, 2, "whole"), (1.1, 3, "nothing")]
    ]
    world = World(setting, faults)
    world.run()
    assert world.book.violations == []
    lost = [toll.slot for toll in world.book.tolls]
    expected = {
        "slot": [1, 2, 3],
        "node": [0, 1, 2, 3, 2, 3],
        "rack": [0, 1, 2, 3] * 3,
        "outage": [],
    }
    assert sorted(lost) == sorted(expected.get(kind, [1, 2, 3]))
    if kind == "torn-write":
        assert world.torn
    if kind == "during-recovery":
        # Dying again before the record was durable, or after: counted once, or twice; never less.
        counted = [readable_failures(world.store.logs[slot]) for slot in (1, 2, 3)]
        assert counted == [1, 2, 1]
    if kind == "outage":
        assert sum(slot.seconds["backup"] for slot in world.slots) > setting.timing.outage


def test_a_store_that_is_out_delays_and_loses_nothing() -> None:
    slow = scenario(policy=Approximate(0, 0, 0), timing=Timing(outage=5.0))
    report = simulate(slow, faults=[Fault(time=0.1, kind="outage")])
    assert report.virtual_seconds > 5
    assert report.state_error == (0.0,)
    assert report.violations == ()


def test_smaller_budgets_back_up_more_and_zero_is_exact() -> None:
    reports = [
        simulate(scenario(policy=Approximate(total, total, total), rounds=20), failures=8)
        for total in (0, 200, 5000)
    ]
    written = [sum(report.bytes_written.values()) for report in reports]
    assert written[0] > written[1] > written[2]
    assert reports[0].state_error == (0.0,)
    assert reports[0].lost_outputs == 0
    assert all(report.losses for report in reports)


def test_never_backed_up_means_that_everything_may_be_lost() -> None:
    setting = scenario(policy=Approximate(math.inf, math.inf, math.inf), rounds=20)
    report = simulate(setting, faults=[Fault(time=0.9, kind="rack")])
    assert report.violations == ()
    assert report.state_error[0] > 400
    assert report.bytes_written["state"] == 0


def test_faults_are_drawn_in_all_kinds_and_in_order() -> None:
    faults = draw_faults(scenario(), 400)
    assert {fault.kind for fault in faults} == set(SHARES)
    times = [fault.time for fault in faults]
    assert times == sorted(times)
    assert draw_faults(scenario(), 0) == []


def test_items_that_a_test_injects_are_part_of_the_truth() -> None:
    world = World(scenario(operators=2), [])
    world.inject(1, np.array([[3, 3], [5, 4]]))
    world.run()
    assert world.book.violations == []
    assert world.state_error(0) == world.state_error(1) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"copies": 0},
        {"batch": 2.5},
        {"policy": Approximate(1, window=Sliding(3, "epochs"))},
        {"policy": Approximate(1, window=Decaying(3))},
        {"policy": Approximate(1, window=Hopping(3, "items"))},
    ],
)
def test_what_cannot_be_simulated_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadValueError):
        scenario(**changes)


@pytest.mark.parametrize("name", ["interval", "store_bandwidth", "store_latency"])
def test_bad_times_are_refused(name: str) -> None:
    with pytest.raises(BadValueError):
        Timing(**{name: -1.0})
