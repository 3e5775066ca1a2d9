"""A source that can be read again for some epochs only: there is always a snapshot to go back to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tether.core.graph import SlotId
from tether.policies.barrier import Barrier
from tether.protocols import snapshots as sn

SLOTS = frozenset([SlotId("count", 0), SlotId("count", 1)])
POLICIES = st.sampled_from(
    [
        Barrier(1),
        Barrier(5, mode="sync"),
        Barrier(30),
        Barrier(3600, by="seconds"),
        Barrier(0.5, by="seconds"),
    ]
)
WHAT = st.sampled_from(["durable", "late", "part fails", "record fails", "loss"])


@given(POLICIES, st.integers(6, 40), st.lists(WHAT, min_size=1, max_size=120))
def test_no_epoch_runs_after_which_the_source_could_not_be_read_again(policy, readable, history):
    """Whatever happens to snapshots, the stream stops in time, and only where none was completed."""
    state, complete_epoch, failing_for = sn.CoordinatorState(), -1, 0
    for epoch, what in enumerate(history):
        event = sn.EpochBegins(epoch=epoch, seconds=float(epoch), readable=readable)
        state, asked = sn.coordinate(state, event, policy, SLOTS)
        if any(isinstance(step, sn.StopStream) for step in asked):
            assert failing_for >= sn.WAIT_EPOCHS, (
                "it stopped though a snapshot would have succeeded"
            )
            return
        # Spark forgets what lies further back than that when the next epoch begins.
        assert complete_epoch >= epoch + 1 - readable
        failing_for = 0 if what == "durable" else failing_for + 1
        number = state.number
        if number is None or what == "late":
            continue
        if what == "loss":
            state, _ = sn.coordinate(state, sn.SlotsLost(), policy, SLOTS)
        elif what == "part fails":
            state, _ = sn.coordinate(state, sn.PartFailed(number=number), policy, SLOTS)
        else:
            taken = state.begun_epoch
            for slot in SLOTS:
                event = sn.PartsDurable(slots=frozenset([slot]), number=number)
                state, _ = sn.coordinate(state, event, policy, SLOTS)
            if what == "record fails":
                state, _ = sn.coordinate(state, sn.PartFailed(number=number), policy, SLOTS)
            else:
                event = sn.CompleteRecorded(number=number)
                state, _ = sn.coordinate(state, event, policy, SLOTS)
                complete_epoch = taken
                assert state.complete_epoch == taken


def test_shortly_before_the_limit_the_stream_waits_for_the_snapshot():
    state = sn.resumed(None)
    held = []
    for epoch in range(10):
        event = sn.EpochBegins(epoch=epoch, readable=10)
        state, asked = sn.coordinate(state, event, Barrier(100), SLOTS)
        for step in asked:
            if isinstance(step, sn.BeginSnapshot):
                held.append((epoch, step.hold_sources))
            if isinstance(step, sn.StopStream):
                assert epoch == 9
                assert step.behind == 10
    # The first is never complete; half of the epochs later it is still being waited for.
    assert held == [(0, False), (7, True), (8, True)]
