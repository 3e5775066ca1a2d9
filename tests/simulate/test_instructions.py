"""An instruction that its interpreter does not know is an error, on every host in one process."""

from __future__ import annotations

import pytest

from tether.core.errors import TetherError
from tether.core.ids import Epoch
from tether.local.take_over import LocalTakeOver
from tether.policies.approximate import Approximate
from tether.policies.base import BasePolicy
from tether.policies.events import EpochApplied
from tether.policies.recovery import LAST_EPOCH
from tether.protocols import take_over as to
from tether.simulate import Scenario, simulate
from tether.simulate.epoch_query import EpochScenario
from tether.simulate.epochs import simulate_epochs


class Sleep:
    """No policy may ask for this."""


class Sleepy(BasePolicy):
    """After an epoch it asks for what nobody knows."""

    name, recovery = "sleepy", LAST_EPOCH

    def describe(self):
        return {"policy": self.name}

    def threshold(self, state, placement):
        return 0.0

    def step(self, state, event, placement):
        asked = (Sleep(),) if isinstance(event, EpochApplied) else ()
        return self.usual(state, event)[0], asked


class SleepyApproximate(Approximate):
    def step(self, state, event, placement):
        state, asked = super().step(state, event, placement)
        return state, ((*asked, Sleep()) if isinstance(event, EpochApplied) else asked)


def test_by_the_engine():
    with pytest.raises(TetherError, match="The policy sleepy asked for Sleep") as error:
        simulate_epochs(EpochScenario(copies=2, policy=Sleepy()))
    assert "does not know this instruction" in error.value.why


def test_by_the_simulator_of_items():
    with pytest.raises(TetherError, match="asked for Sleep"):
        simulate(Scenario(copies=2, policy=SleepyApproximate(10), rounds=2))


def test_by_the_take_over():
    over = LocalTakeOver(lambda number, snapshot: None, lambda run, epoch: None)
    over.tell(to.Lost(epoch=Epoch(3), snapshot=Epoch(1)))
    over.asked.appendleft(Sleep())
    with pytest.raises(AssertionError, match="Sleep"):
        over.obey()
