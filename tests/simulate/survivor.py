"""One real state under a real policy, a store beside it, and a way to lose it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.placement import Placement
from tether.policies.events import EpochApplied, Recovered
from tether.policies.instructions import BackUpState, RecordFailures
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from tether.policies.approximate import Approximate
    from tether.policies.window_effects import WindowedState
    from tether.state.vector import Vector


class Survivor:
    """A vector whose backups and thresholds follow the policy, epoch by epoch."""

    def __init__(self, policy: Approximate, size: int, dtype: str, norm: str) -> None:
        self.policy, self.made = policy, (size, dtype, norm)
        self.policy_state: WindowedState = policy.initial()
        self.durable = self.policy_state
        self.frames: list[dict] = []
        self.epoch = 0
        self.vector, self.state = self._empty()

    def _empty(self) -> tuple[Vector, SlotState]:
        size, dtype, norm = self.made
        state = SlotState.heap()
        return state.vector("v", size, dtype=dtype, divergence=norm), state

    @property
    def theta(self) -> float:
        return self.policy.threshold(self.policy_state, Placement())

    def apply(self, change, *, time: float) -> None:
        """One epoch: change the vector, back up what the policy asks for, commit."""
        self.state.begin(self.epoch)
        change(self.vector)
        event = EpochApplied(
            epoch=self.epoch,
            divergence=self.state.divergence(),
            items=1,
            newest_event_time=time,
            watermark=time,
        )
        self.policy_state, asked = self.policy.step(self.policy_state, event, Placement())
        for one in asked:
            self.durable = self.policy_state
            if isinstance(one, RecordFailures):
                continue
            assert isinstance(one, BackUpState)
            exports = self.state.export(one.target)
            if exports and all(export.full for export in exports.values()):
                self.frames.clear()  # it replaces all before it
            self.frames.append({name: export.batches for name, export in exports.items()})
        self.state.commit(self.epoch)
        assert self.state.divergence(exact=True) <= self.theta
        self.epoch += 1

    def lose(self, *, time: float) -> float:
        """Lose the state and restore it; give θ at the loss, as far as that is durable."""
        theta = self.policy.threshold(self.durable, Placement())
        lost = self.state.divergence(exact=True)
        assert lost <= theta, f"{lost} is lost, and priced at {theta}"
        self.vector, self.state = self._empty()
        self.state.begin_restore()
        for frame in self.frames:
            self.state.restore(frame)
        self.state.finish_restore(self.epoch - 1)
        event = Recovered(epoch=self.epoch, newest_event_time=time)
        self.policy_state, _ = self.policy.step(self.durable, event, Placement())
        self.durable = self.policy_state
        return theta
