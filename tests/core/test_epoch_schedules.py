"""Exact policies in epochs, as the runtime executes them: after any losses the clean run's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tether.policies.barrier import Barrier
from tether.policies.mini_batch import MiniBatch
from tether.policies.upstream_backup import UpstreamBackup
from tether.protocols.rewind import RewindPlan, plan_rewind

from .epoch_run import EpochRun
from .small_graphs import DIAMOND, LOOP, PAIRS, PIPELINE, Case, clean_answer, streams_of

if TYPE_CHECKING:
    from tether.policies.policy import Policy

POLICIES: list[Policy] = [
    MiniBatch(),
    UpstreamBackup(0.3, of_items=10),
    Barrier(2),
    Barrier(2, mode="sync"),
]


def check(case: Case, policy: Policy, seed: int, items: list[int], **settings: Any) -> EpochRun:
    streams = streams_of(case, items)
    flat = [(way, item) for way, found in streams.items() for item in found]
    # Six epochs of items, then empty ones until all feedback has died away.
    epochs = [flat[n::6] for n in range(6)] + [[] for _ in range(6)]
    run = EpochRun(case, epochs, policy, seed=seed, **{"crashes": 4, **settings})
    assert run.run() == clean_answer(case, streams)
    return run


@pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda policy: "-".join(map(str, policy.describe().values()))
)
@pytest.mark.parametrize("case", [PIPELINE, PAIRS, DIAMOND, LOOP], ids=lambda case: case.name)
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    items=st.lists(st.integers(0, 9), max_size=16),
    crashes=st.integers(0, 5),
)
def test_the_answer_is_the_clean_one(
    case: Case, policy: Policy, seed: int, items: list[int], crashes: int
) -> None:
    check(case, policy, seed, items, crashes=crashes)


def test_schedules_reach_what_they_are_for() -> None:
    runs = [check(PAIRS, Barrier(2), seed, list(range(12))) for seed in range(60)]
    assert sum(run.rewinds for run in runs) > 30
    assert sum(run.kept for run in runs) > 30
    assert sum(run.coordinator.complete is not None for run in runs) > 30


def reads_too_little(*about: Any, **more: Any) -> RewindPlan:
    plan = plan_rewind(*about, **more)
    return replace(plan, read_from=plan.read_from + 1)


def replays_nothing(*about: Any, **more: Any) -> RewindPlan:
    plan = plan_rewind(*about, **more)
    return replace(plan, restore=tuple(replace(back, replay=False) for back in plan.restore))


BROKEN: dict[str, tuple[Policy, dict[str, Any]]] = {
    "an epoch is not read again": (Barrier(2), {"plan": reads_too_little}),
    "logged rows are not replayed": (POLICIES[1], {"plan": replays_nothing}),
    "a backup counts before its epoch does": (POLICIES[1], {"early_commit": True}),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rule_is_noticed(broken: str) -> None:
    policy, settings = BROKEN[broken]

    def wrong(seed: int) -> bool:
        try:
            check(PIPELINE, policy, seed, list(range(12)), **settings)
        except (AssertionError, KeyError, IndexError):
            return True
        return False

    assert any(wrong(seed) for seed in range(300)), f"no schedule noticed: {broken}"
