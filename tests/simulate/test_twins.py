"""The take-over on the engine's own slots: any schedule of epochs, losses and crashes ends exact."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tether.policies.barrier import Barrier
from tether.simulate.epoch_query import EpochScenario
from tether.simulate.twins import TwinWorld

STRATEGIES = ("process", "delay", "suspend")
EVENTS = ("main", "twin", "obey", "lose main", "lose twin", "crash", "main dies")
OFTEN = ("main", "twin", "obey") * 3


def world_of(how="stale", strategy="delay", every=4, operators=2, seed=1):
    policy = Barrier(every, mode="sync")
    scenario = EpochScenario(
        copies=2, operators=operators, policy=policy, batch=4, keys=5, seed=seed
    )
    return TwinWorld(scenario, how=how, strategy=strategy)


def happen(world, what, slot=0):
    {
        "main": world.run_main,
        "twin": world.run_twin,
        "obey": world.obey,
        "lose main": lambda: world.lose("main", slot),
        "lose twin": lambda: world.lose("twin", slot),
        "crash": world.crash,
        "main dies": lambda: world.run_main(dies=True),
    }[what]()
    assert world.reader.violations == []


def check_end(world):
    world.settle(3)
    assert world.reader.violations == []
    assert sorted(world.reader.stable) == list(range(world.committed + 1))
    assert world.reader.tentative == set()
    assert (world.note, world.twin) == (None, None)


TEN_LOSSES = [*["main"] * 7, *["lose main", "main", "obey", "obey", "main", "twin"] * 10]
CRASHES = [*["main"] * 5, *["lose main", "main", "obey", "obey", "main", "twin", "crash"] * 5]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(EVENTS + OFTEN), st.integers(0, 1)), max_size=60),
    st.sampled_from(["stale", "skip"]),
    st.sampled_from(STRATEGIES),
    st.integers(1, 6),
)
@example([(what, 1) for what in TEN_LOSSES], "stale", "delay", 4)
@example([(what, 0) for what in TEN_LOSSES], "skip", "process", 5)
@example([(what, 1) for what in CRASHES], "stale", "delay", 4)
@example([(what, 0) for what in CRASHES], "skip", "suspend", 3)
def test_any_schedule_ends_exact(events, how, strategy, every):
    world = world_of(how, strategy, every)
    for what, slot in events:
        happen(world, what, slot)
    check_end(world)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("after", range(14))
def test_a_crash_after_every_instruction(strategy, after):
    world = world_of(strategy=strategy)
    for _ in range(7):
        happen(world, "main")
    happen(world, "lose main", 1)
    done = 0
    for _ in range(100):
        if world.asked:
            happen(world, "obey")
            done += 1
        else:
            happen(world, "twin")
            if world.committed < 9:
                happen(world, "main")
        if done == after:
            happen(world, "crash")
            break
    check_end(world)


def test_it_answers_meanwhile_and_is_wrong_then():
    world = world_of()
    for _ in range(7):
        happen(world, "main")
    happen(world, "lose main", 1)
    happen(world, "main")  # finds the loss
    happen(world, "obey")
    happen(world, "main")
    happen(world, "main")
    assert world.reader.tentative == {7, 8}
    assert world.reader.wrong == 2
    check_end(world)
