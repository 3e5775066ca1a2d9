"""The laws of policies: all of ours keep them, and each law notices who breaks it."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from tether.core.windows import Hopping, Sliding
from tether.policies.approximate import Approximate
from tether.policies.available import Available
from tether.policies.barrier import Barrier
from tether.policies.base import BasePolicy
from tether.policies.events import EpochApplied, Recovered, RowsReady
from tether.policies.instructions import BackUpState
from tether.policies.mini_batch import MiniBatch
from tether.policies.no_tolerance import NoTolerance
from tether.policies.partially_active import PartiallyActive
from tether.policies.recovery import FROM_BACKUP, LAST_EPOCH, REPLAY, Recovery
from tether.policies.upstream_backup import UpstreamBackup
from tether.testing import LawBrokenError, check_policy
from tether.testing.policies import COUNTED, KEEPS, KNOWN, PURE, STORED, THETA_FALLS, WITHIN_THETA


@pytest.mark.parametrize(
    "policy",
    [
        NoTolerance(),
        MiniBatch(),
        UpstreamBackup(0.3),
        Barrier(2),
        Barrier(2, mode="sync"),
        PartiallyActive(share=0.5, snapshots=Barrier(2)),
        Available(delay=3.0),
        Approximate(50),
        Approximate(0),
        Approximate(50, window=Hopping(4, "epochs")),
        Approximate(50, window=Sliding(30, "items"), early=0.5, backup_target=0.1),
    ],
    ids=str,
)
def test_ours_keep_all_laws(policy):
    check_policy(policy, schedules=4)


class OfOurs(BasePolicy):
    """A right one: every epoch is backed up."""

    name, recovery = "of-ours", LAST_EPOCH

    def describe(self):
        return {"policy": self.name}

    def threshold(self, state, placement):
        return 0.0

    def step(self, state, event, placement):
        if isinstance(event, EpochApplied):
            backup = BackUpState(target=0.0, cause="every-epoch")
            return self.counting(state, event), (backup,)
        return self.usual(state, event)


class Moody(OfOurs):
    def step(self, state, event, placement):
        state, asked = super().step(state, event, placement)
        return replace(state, items=state.items + random.randrange(1 << 30)), asked


class Untyped(OfOurs):
    def step(self, state, event, placement):
        return {"failures": 0}, ()


class Unknown(OfOurs):
    def step(self, state, event, placement):
        return state, ("sleep",)


class Uncounted(OfOurs):
    def step(self, state, event, placement):
        if isinstance(event, Recovered):
            return state, ()
        return super().step(state, event, placement)


class Lazy(OfOurs):
    def step(self, state, event, placement):
        return self.usual(state, event)


class Growing(OfOurs):
    recovery = FROM_BACKUP

    def threshold(self, state, placement):
        return float(state.failures)


class LogsNothing(OfOurs):
    """Says that rows are replayed, and never asks for them to be logged."""

    recovery: Recovery = REPLAY

    def threshold(self, state, placement):
        return float("inf")

    def step(self, state, event, placement):
        if isinstance(event, RowsReady):
            return state, ()
        return self.usual(state, event)


@pytest.mark.parametrize(
    ("policy", "law"),
    [
        (Moody(), PURE),
        (Untyped(), STORED),
        (Unknown(), KNOWN),
        (Uncounted(), COUNTED),
        (Lazy(), WITHIN_THETA),
        (Growing(), THETA_FALLS),
        (LogsNothing(), KEEPS),
    ],
    ids=lambda value: value.__class__.__name__,
)
def test_who_breaks_a_law_is_told_which(policy, law):
    check_policy(OfOurs(), schedules=3)
    with pytest.raises(LawBrokenError) as caught:
        check_policy(policy, schedules=12)
    assert caught.value.law == law
