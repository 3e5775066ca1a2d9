"""Faults planted in the engine are noticed on Spark's side; see ``tests/simulate/test_epochs.py``."""

from __future__ import annotations

import pytest

from tether.core.errors import TetherError
from tether.engine.recovery import found
from tether.policies.approximate import Approximate
from tether.policies.mini_batch import MiniBatch
from tether.state.slot import SlotState

from .one_slot import Harness


def lost_and_told(root):
    """What a slot lost, and what the query's books say that it can have lost at most."""
    slot = Harness(Approximate(100), root)
    try:
        slot.epoch([[1, 1, 2]])
        slot.lose_state()
        slot.epoch([[3]])
        return 4 - sum(slot.counts().values()), slot.ledger.bound().spent
    finally:
        slot.close()


def test_a_loss_that_is_not_priced_is_noticed(tmp_path, monkeypatch):
    lost, told = lost_and_told(tmp_path / "right")
    assert lost == told == 3
    monkeypatch.setattr(found, "_is_whole", lambda *_: True)
    lost, told = lost_and_told(tmp_path / "planted")
    assert lost > told


def counted_after_a_cut(root):
    """How often a key was counted that came once, after a task that was cut off half way."""
    slot = Harness(MiniBatch(), root)
    try:
        slot.epoch([[1]])
        slot.run(1, [[2], [2]], stop_after=1)
        slot.epoch([[2], [2]])
        return slot.counts()[2]
    finally:
        slot.close()


def test_an_epoch_that_is_not_rolled_back_is_noticed(tmp_path, monkeypatch):
    assert counted_after_a_cut(tmp_path / "right") == 2
    monkeypatch.setattr(SlotState, "rollback", lambda _: False)
    with pytest.raises((AssertionError, TetherError)):
        assert counted_after_a_cut(tmp_path / "planted") == 2
