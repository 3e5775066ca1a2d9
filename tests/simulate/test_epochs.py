"""The engine itself, simulated: every policy keeps its promise, and planted faults are noticed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.core.errors import TetherError
from tether.core.graph import SlotId
from tether.engine.recovery import found
from tether.policies.approximate import Approximate
from tether.policies.barrier import Barrier
from tether.policies.mini_batch import MiniBatch
from tether.policies.no_tolerance import NoTolerance
from tether.policies.upstream_backup import UpstreamBackup
from tether.simulate.epoch_faults import SHARES, EpochFault
from tether.simulate.epoch_query import EpochScenario
from tether.simulate.epochs import EpochWorld, simulate_epochs
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from tether.policies.policy import Policy

POLICIES: list[Policy] = [
    Approximate(400),
    Approximate(400, early=0.5, backup_target=0.1),
    MiniBatch(),
    UpstreamBackup(0.4),
    Barrier(2),
    Barrier(2, mode="sync"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_every_policy_keeps_its_promise(policy: Policy) -> None:
    scenario = EpochScenario(copies=8, operators=2, epochs=6, policy=policy)
    report = simulate_epochs(scenario, failures=40)
    assert report.violations == ()
    assert sum(report.faults.values()) >= 20
    assert report.recoveries > 0
    if policy.recovery.exact:
        assert report.state_error == (0.0, 0.0)
    assert simulate_epochs(scenario, failures=40) == report


def test_without_backups_a_loss_is_told_as_infinite() -> None:
    report = simulate_epochs(EpochScenario(copies=6, policy=NoTolerance()), failures=12)
    assert report.violations == ()
    assert report.told == (math.inf,)


faults = st.builds(
    EpochFault,
    kind=st.sampled_from(list(SHARES)),
    epoch=st.integers(1, 5),
    slot=st.builds(SlotId, st.sampled_from(["000", "001"]), st.integers(0, 2)),
)


@settings(max_examples=30, deadline=None)
@given(policy=st.sampled_from(POLICIES), schedule=st.lists(faults, max_size=8))
def test_any_schedule_of_faults(policy: Policy, schedule: list[EpochFault]) -> None:
    scenario = EpochScenario(copies=3, operators=2, epochs=6, slots_per_node=2, policy=policy)
    assert simulate_epochs(scenario, faults=schedule).violations == ()


# ---- faults planted in the engine; ``tests/spark/test_planted.py`` plants the same ------------------


def _violations(policy: Policy, kind: Any) -> list[str]:
    schedule = [EpochFault(kind, epoch, SlotId("000", 1)) for epoch in (2, 3)]
    world = EpochWorld(EpochScenario(copies=2, epochs=5, policy=policy), schedule)
    world.run()
    return world.violations


def test_a_loss_that_is_not_priced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _violations(Approximate(1000), "state") == []
    monkeypatch.setattr(found, "_is_whole", lambda *_: True)
    assert any("was told" in one for one in _violations(Approximate(1000), "state"))


def test_an_epoch_that_is_not_rolled_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _violations(MiniBatch(), "after-apply") == []
    monkeypatch.setattr(SlotState, "rollback", lambda _: False)
    with pytest.raises((AssertionError, TetherError)):
        assert _violations(MiniBatch(), "after-apply") == []
