"""Windows that clear the state while a backup of it is being written, in a slot without Spark."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import rule

import tether
from tether.chaos.faults import Fault
from tether.engine.slot.residents import ArenaResident
from tether.engine.writing.background import look
from tether.state.identity import Owner

from .test_slot_protocol import EPOCH, Count, Harness, SlotMachine

END = -1
"""A key that ends the window."""


class Windowed(Count):
    """Counts of the window so far: what comes after its end belongs to the next one."""

    def process(self, batch, out):
        for row in batch["k"].to_pylist():
            if row == END:
                self.seen.clear()
            else:
                self.seen.add([[row]], n=1)


class WindowedHarness(Harness):
    def __init__(self, policy, root):
        super().__init__(policy, root)
        self.blob = pickle.dumps(Windowed())

    def wait_for_writer(self):
        """Until the backup that the last epoch began, if any, is durable or has failed."""
        resident = ArenaResident(self.program(self.committed + 1), 0, Owner.of(0))
        resident.attach()
        early, notes = resident.memory().early, resident.notes
        resident.release()
        while early is not None and look(notes, early.work) is None:
            pass


class WindowedSlotMachine(SlotMachine):
    """Any order of windows, epochs, failed writes, retries and losses."""

    policy = tether.Approximate(40, early=0.2, backup_target=0.0)

    def __init__(self):
        super().__init__()
        self.harness.close()
        self.harness = WindowedHarness(self.policy, self.root)
        self.number = itertools.count()

    @rule(batches=EPOCH, ends=st.booleans(), fails=st.sampled_from([True, True, False]))
    def windowed_epoch(self, batches, ends, fails):
        """An epoch, the first rows of which may end a window, with a writer that may fail."""
        batches = [[END], *batches] if ends else batches
        marker = str(self.root / f"struck-{next(self.number)}")
        faults = [Fault(point="during-writing", action="raise", marker=marker)] if fails else []
        epoch = self.harness.committed + 1
        self.harness.commit(self.harness.run(epoch, batches, faults=faults))
        self.harness.wait_for_writer()
        if ends:
            self.truth = Counter()
        for keys in batches[ends:]:
            self.truth.update(keys)
        self.there = True


TestWindowed = WindowedSlotMachine.TestCase
TestWindowed.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)


@pytest.mark.parametrize("fails", [True, False])
def test_windows_that_end_while_their_backup_is_written(tmp_path, fails):
    """What such a window held does not add up, whether its backup becomes durable or not."""
    slot = WindowedHarness(tether.Approximate(40, early=0.5, backup_target=0.0), tmp_path)
    theta = 20
    for epoch in range(8):
        fault = Fault(
            point="during-writing", action="raise", marker=str(tmp_path / f"struck-{epoch}")
        )
        rows = [[END], [epoch] * 12] if epoch % 2 == 0 else [[END], [epoch]]
        status = slot.run(epoch, rows, faults=[fault] if fails else [])
        slot.commit(status)
        assert slot.counts() == {epoch: 12 if epoch % 2 == 0 else 1}
        assert status.divergence <= theta
        slot.wait_for_writer()
        if fails:
            assert status.frame is None
            assert status.divergence == sum(slot.counts().values())
    slot.close()
