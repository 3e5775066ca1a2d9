"""A stateful machine drives the simulator: any order of items, faults and passing time."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tether.policies.approximate import Approximate
from tether.simulate import Fault, Scenario, World
from tether.simulate.faults import SHARES


class SimulatorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        budget=st.tuples(*[st.sampled_from([0, 5, 80, 600])] * 3),
        operators=st.integers(1, 2),
        kind=st.sampled_from(["vector", "table"]),
    )
    def start(self, budget: tuple[int, int, int], operators: int, kind: str) -> None:
        scenario = Scenario(
            copies=2,
            operators=operators,
            policy=Approximate(*budget),
            rounds=1,
            batch=3,
            keys=4,
            alpha=9,
            kind=kind,  # type: ignore[arg-type]
            slots_per_node=1,
            nodes_per_rack=2,
        )
        self.world = World(scenario, [])

    @rule(copy=st.integers(0, 1), amounts=st.lists(st.sampled_from([-9, 1, 9]), min_size=1))
    def give(self, copy: int, amounts: list[int]) -> None:
        assert self.world is not None
        keys = np.arange(len(amounts)) % 4
        self.world.inject(copy, np.stack([keys, np.array(amounts, np.int64)]))

    @rule(events=st.integers(1, 30))
    def wait(self, events: int) -> None:
        assert self.world is not None
        for _ in range(events):
            self.world.clock.step()

    @rule(
        kind=st.sampled_from(list(SHARES)),
        victim=st.integers(0, 3),
        outcome=st.sampled_from(["nothing", "torn", "whole"]),
        moment=st.sampled_from([0.0, 0.5, 1.0]),
    )
    def break_something(self, kind: str, victim: int, outcome: str, moment: float) -> None:
        assert self.world is not None
        target = victim % self.world.scenario.slots
        now = self.world.clock.now
        fault = Fault(time=now, kind=kind, target=target, outcome=outcome, moment=moment)  # type: ignore[arg-type]
        self.world.strike(fault)

    @invariant()
    def promises_are_kept(self) -> None:
        if self.world is not None:
            assert self.world.book.violations == []

    def teardown(self) -> None:
        if self.world is not None:
            self.world.run()
            assert self.world.book.violations == []


TestSimulator = SimulatorMachine.TestCase
TestSimulator.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
