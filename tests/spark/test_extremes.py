"""Minima and maxima in a slot that loses its state again and again, without Spark."""

from __future__ import annotations

import json
import math
import pickle
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import tether
from tether.cli.app import app

from .test_slot_protocol import Count, Harness

KEYS = 12


class Lowest(Count):
    """The lowest value of each key. A row holds both: 12 times the value, and the key."""

    def setup(self, state):
        self.seen = state.table("seen", {"k": pa.int64()}, {"n": "float64"}, starts={"n": math.inf})

    def process(self, batch, out):
        values = pc.divide(batch["k"], KEYS)
        keys = pc.subtract(batch["k"], pc.multiply(values, KEYS))
        self.seen.minimum([keys], n=values)

    def on_epoch_end(self, out):
        pass


@pytest.mark.parametrize("seed", range(4))
def test_a_minimum_is_never_forgotten(seed, tmp_path):
    """After every loss a key still knows its minimum, but for what was told to be lost.

    Values mostly fall from epoch to epoch, and never jump back to what a later row says: that would be
    an error without a bound.
    """
    draw = random.Random(seed)
    policy = tether.Approximate(200, early=draw.choice([1.0, 0.6]))
    slot = Harness(policy, tmp_path)
    slot.blob = pickle.dumps(Lowest())
    truth: dict[int, int] = {}
    backups = 0
    for epoch in range(20):
        rows = [
            (draw.randrange(KEYS), draw.randrange(1000 - 45 * epoch, 1000 if epoch % 5 else 10**6))
            for _ in range(draw.randrange(6))
        ]
        status = slot.run(epoch, [[value * KEYS + key for key, value in rows]] if rows else [])
        slot.commit(status)
        backups += status.frame is not None
        for key, value in rows:
            truth[key] = min(value, truth.get(key, value))
        found = slot.counts()
        assert found.keys() == truth.keys()
        error = sum(abs(truth[key] - found[key]) for key in truth)
        spent = slot.ledger.bound().spent
        assert error <= spent <= policy.budget.max_state_error
        if draw.random() < 0.3:
            slot.lose_state()
    assert 0 < backups < 20
    assert slot.ledger.bound().slots[0].failures > 0
    slot.close()
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "backup"), "--json"]).stdout
    frames = json.loads(shown, parse_constant=pytest.fail)["slots"][0]["frames"]
    # A new key had been infinitely far from its backup, which JSON has no number for.
    assert "inf" in [frame["divergence_before"] for frame in frames]
