"""The judge of a simulation: it adds the items up itself."""

from __future__ import annotations

import numpy as np
import pytest

from tether.core.windows import Hopping
from tether.policies.approximate import Approximate
from tether.simulate import Fault, Scenario, World
from tether.simulate.judged import MOST_ITEMS, outside


def ended(**changes: object) -> World:
    given: dict[str, object] = {"copies": 2, "operators": 2, "fan_out": 2, "rounds": 6, "keys": 5}
    scenario = Scenario(**{**given, "policy": Approximate(300, 20, 20), **changes})  # type: ignore[arg-type]
    world = World(scenario, [Fault(time=0.12, kind="slot", target=1)])
    world.run()
    assert world.book.violations == []
    return world


@pytest.mark.parametrize("operator", [0, 1])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_a_state_that_is_wrong_is_seen(operator: int, norm: str) -> None:
    world = ended(norm=norm)
    slot = world.slots[2 * operator]
    slot.sums.state.begin(slot.sums.state.epoch + 1)
    slot.sums.apply(np.array([[3], [10_000]]))
    (found,) = outside(world)
    assert found.startswith(f"judge: operator {operator}: epoch 0: the answer is outside its bound")


def test_a_window_that_is_wrong_is_seen() -> None:
    world = ended(policy=Approximate(300, 20, 20, window=Hopping(0.1)), operators=1)
    assert len(world.answers) > 2
    at = min(world.answers)
    world.answers[at] = world.answers[at] + 10_000
    assert [one.split(": off")[0] for one in outside(world)] == [
        "judge: operator 0: epoch 0: the answer is outside its bound"
    ]


def test_what_is_wrong_although_nothing_was_lost_is_seen_within_any_bound() -> None:
    scenario = Scenario(copies=1, policy=Approximate(10_000), rounds=2)
    world = World(scenario, [])
    world.run()
    slot = world.slots[0]
    slot.sums.state.begin(slot.sums.state.epoch + 1)
    slot.sums.apply(np.array([[0], [1]]))
    assert any("nothing was lost" in one for one in outside(world))


def test_too_many_items_are_left_to_smaller_runs() -> None:
    world = ended()
    world.given = [np.zeros((2, 2, MOST_ITEMS), np.int64)]
    assert outside(world) == []
