"""AF-Stream's theorems (2019 §3.5) on whole simulated histories, with real states and protocols."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tether.core.windows import Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.simulate import Fault, Scenario, World
from tether.simulate.faults import SHARES

from .promises import check

ROUNDS = 8
END = ROUNDS * 0.05
budgets = st.tuples(*[st.sampled_from([0, 1, 7, 60, 500, 4000])] * 3)
scenarios = st.builds(
    lambda budget, early, **rest: Scenario(
        policy=Approximate(*budget, early=early), rounds=ROUNDS, slots_per_node=2, **rest
    ),
    budget=budgets,
    early=st.sampled_from([0.6, 1.0]),
    copies=st.integers(1, 3),
    operators=st.integers(1, 3),
    fan_out=st.integers(1, 2),
    batch=st.sampled_from([1, 4, 9]),
    keys=st.sampled_from([1, 6]),
    alpha=st.sampled_from([1, 20]),
    worst_items=st.booleans(),
    kind=st.sampled_from(["vector", "table"]),
    norm=st.sampled_from(["l1", "l2", "max"]),
    nodes_per_rack=st.just(2),
    seed=st.integers(0, 1000),
)
faults = st.builds(
    Fault,
    time=st.floats(0, END * 1.2),
    kind=st.sampled_from(list(SHARES)),
    target=st.just(0),
    outcome=st.sampled_from(["nothing", "torn", "whole"]),
    moment=st.sampled_from([0.0, 0.5, 1.0]),
)
schedules = st.lists(st.tuples(faults, st.integers(0, 8)), max_size=12)


def aimed(scenario: Scenario, schedule: list[tuple[Fault, int]]) -> list[Fault]:
    return [
        Fault(
            time=fault.time,
            kind=fault.kind,
            target=target % scenario.slots,
            outcome=fault.outcome,
            moment=fault.moment,
        )
        for fault, target in schedule
    ]


@settings(max_examples=40)
@given(scenario=scenarios, schedule=schedules)
def test_any_history_stays_within_the_bounds(scenario: Scenario, schedule: list) -> None:
    world = check(scenario, aimed(scenario, schedule))
    if not world.book.tolls or scenario.policy.budget == Approximate(0).budget:
        assert all(world.state_error(op) == 0 for op in range(scenario.operators))
        assert world.outputs == world.ideal_outputs


def worst_moments(outcome: str = "nothing", every: float = 0.03, until: float = 2.0) -> list[Fault]:
    """Kill the slots just when their next backup starts: the state has drifted most."""
    times = np.arange(0.01, until, every)
    return [
        Fault(time=float(at), kind="during-backup", target=n % 2, outcome=outcome, moment=0.0)  # type: ignore[arg-type]
        for n, at in enumerate(times)
    ]


def adversarial(budget: tuple[float, float, float], **changes: object) -> Scenario:
    given: dict[str, object] = {"copies": 2, "rounds": 40, "batch": 6, "keys": 4, "alpha": 9}
    given["worst_items"] = True
    given["policy"] = Approximate(*budget)
    return Scenario(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", ["nothing", "torn", "whole"])
@pytest.mark.parametrize("budget", [(2000, 30, 30), (2000, 0, 0), (100, 200, 3), (0, 0, 0)])
def test_the_worst_moments_and_the_largest_items(budget: tuple, outcome: str) -> None:
    world = check(adversarial(budget), worst_moments(outcome))
    assert len(world.book.tolls) >= 20  # far more failures than halvings of any of these
    if outcome == "nothing" and budget[:2] == (2000, 30):
        assert world.state_error(0) > budget[0] / 8  # the adversary does get something


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("outcome", ["nothing", "torn", "whole"])
def test_dying_in_recovery_any_number_of_times_never_loses_count(outcome: str, times: int) -> None:
    scenario = adversarial((2000, 100, 100))
    world = World(scenario, [])
    slot = world.slots[0]
    for _ in range(60):
        world.clock.step()
    for _ in range(times):  # each time when the record of the failure is being written
        slot.arm("recovery", outcome, 0.9)  # type: ignore[arg-type]
        if slot.up:
            slot.die("nothing")
        while slot.armed:
            world.clock.step()
        life = slot.life
        while slot.life == life:
            world.clock.step()
    world.run()
    assert world.book.violations == []
    assert len([toll for toll in world.book.tolls if toll.slot == 0]) == 1
    assert slot.policy_state.failures == 1 + times * (outcome == "whole")


@settings(max_examples=15)
@given(scenario=scenarios, schedule=schedules, target=st.integers(0, 8))
def test_recovering_twice_is_recovering_once(
    scenario: Scenario, schedule: list, target: int
) -> None:
    world = check(scenario, aimed(scenario, schedule))
    slot = world.slots[target % scenario.slots]

    def lose_and_recover() -> tuple[list[int], list[tuple[int, list]]]:
        slot.disarm()
        slot.die("nothing")
        while not slot.up:
            world.clock.step()
        return slot.sums.values().tolist(), [(run.first, run.items.tolist()) for run in slot.runs]

    assert lose_and_recover() == lose_and_recover()
    world.clock.run()
    assert world.book.violations == []


@settings(max_examples=15)
@given(
    length=st.sampled_from([0.05, 0.11, 0.3]),
    budget=st.sampled_from([(500, 60, 60), (60, 7, 1), (0, 0, 0)]),
    operators=st.integers(1, 2),
    kind=st.sampled_from(["vector", "table"]),
    schedule=schedules,
    seed=st.integers(0, 99),
)
def test_every_hopping_window_has_its_answer_within_the_bounds(
    *, length: float, budget: tuple, operators: int, kind: str, schedule: list, seed: int
) -> None:
    scenario = Scenario(
        copies=2,
        operators=operators,
        policy=Approximate(*budget, window=Hopping(length)),
        rounds=12,
        batch=6,
        kind=kind,  # type: ignore[arg-type]
        seed=seed,
        worst_items=True,
    )
    world = check(scenario, aimed(scenario, schedule))
    assert world.ideal_answers


@settings(max_examples=15)
@given(
    length=st.sampled_from([0.05, 0.11, 0.3]),
    budget=st.sampled_from([(500, 60, 60), (60, 7, 1)]),
    schedule=schedules,
    seed=st.integers(0, 99),
)
def test_what_any_sliding_window_loses_is_within_the_bounds(
    *, length: float, budget: tuple, schedule: list, seed: int
) -> None:
    policy = Approximate(*budget, window=Sliding(length))
    scenario = adversarial((0, 0, 0), policy=policy, rounds=12, seed=seed)
    world = check(scenario, aimed(scenario, schedule))
    if not world.book.tolls:
        assert world.state_error(0) == 0


def test_a_hopping_window_gives_the_thresholds_back_at_its_end() -> None:
    window = Hopping(0.2)
    scenario = Scenario(copies=2, policy=Approximate(400, 64, 64, window=window), rounds=20)
    world = World(scenario, [Fault(time=0.25, kind="slot"), Fault(time=0.31, kind="slot")])
    fresh = world.slots[0].limits
    seen = {}
    while world.clock.step():
        seen[round(world.clock.now, 2)] = world.slots[0].limits.theta
    assert min(seen.values()) == fresh.theta / 4
    assert world.slots[0].limits == fresh
    world.check_end()
    assert world.book.violations == []


def test_what_is_under_way_at_a_loss_never_overtakes_what_is_sent_again() -> None:
    # The slot is back just between a message that was sent to it and the arrival of that message.
    exact = Approximate(0, 0, 0, window=Hopping(0.05))
    scenario = Scenario(copies=2, policy=exact, rounds=12, batch=6, worst_items=True)
    times = [0.248 + 0.0001 * n for n in range(12)]
    for time in times:
        check(scenario, [Fault(time=time, kind="slot")])


def test_a_window_whose_end_is_recorded_has_its_answer_given() -> None:
    # A slot that has failed before records the window's end, and dies over that record, which is whole.
    policy = Approximate(60, 7, 1, window=Hopping(0.05))
    scenario = Scenario(copies=2, policy=policy, rounds=12, batch=6, worst_items=True)
    for n in range(60):
        write = Fault(time=0.01 * n, kind="during-backup", outcome="whole")
        check(scenario, [Fault(time=0.0, kind="slot"), write])
