"""The coordinator of snapshots, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.graph import SlotId
from tether.policies.barrier import Barrier
from tether.protocols.snapshots import (
    BeginSnapshot,
    CompleteRecorded,
    CoordinatorState,
    DropOlder,
    EpochBegins,
    GiveUpSnapshot,
    PartsDurable,
    RecordComplete,
    coordinate,
    resumed,
)

if TYPE_CHECKING:
    from tether.protocols.snapshots import CoordinatorEvent, CoordinatorInstruction

A, B = SlotId("a", 0), SlotId("b", 0)
BOTH = frozenset([A, B])


def after(
    *events: CoordinatorEvent, policy: Barrier | None = None, state: CoordinatorState | None = None
) -> tuple[CoordinatorState, list[CoordinatorInstruction]]:
    """State, and what the last event asked for."""
    state, asked = state or CoordinatorState(), ()
    for event in events:
        state, asked = coordinate(state, event, policy or Barrier(2, patience=3), BOTH)
    return state, list(asked)


def part(slot: SlotId, number: int = 0) -> PartsDurable:
    return PartsDurable(slots=frozenset([slot]), number=number)


def test_a_snapshot_is_complete_with_the_record_of_its_last_part() -> None:
    begin = EpochBegins(epoch=0)
    assert after(begin, part(A))[1] == []
    assert after(begin, part(A), part(A))[1] == []
    assert after(begin, part(A), part(B))[1] == [RecordComplete(number=0)]
    early, _ = after(begin, part(A), CompleteRecorded(number=0))
    assert (early.complete, early.number) == (None, 0)
    done, asked = after(begin, part(A), part(B), CompleteRecorded(number=0))
    assert (done.complete, done.complete_epoch, asked) == (0, 0, [DropOlder(number=0)])


def test_one_that_does_not_get_on_is_given_up_for_the_next() -> None:
    begin = EpochBegins(epoch=0)
    assert after(begin, EpochBegins(epoch=5))[1] == []
    late = after(begin, EpochBegins(epoch=6))[1]
    assert late == [GiveUpSnapshot(number=0), BeginSnapshot(number=1, hold_sources=False)]


def test_the_next_one_begins_after_an_interval() -> None:
    done, _ = after(EpochBegins(epoch=0), part(A), part(B), CompleteRecorded(number=0))
    for readable in (None, 100):
        begins = [
            after(EpochBegins(epoch=epoch, readable=readable), state=done)[1] for epoch in (1, 2)
        ]
        assert begins == [[], [BeginSnapshot(number=1, hold_sources=False)]]


def test_parts_of_a_snapshot_that_is_over_do_not_count_for_another() -> None:
    state, asked = after(EpochBegins(epoch=0), EpochBegins(epoch=6), part(A, 0), part(B, 0))
    assert (state.number, state.missing, asked) == (1, BOTH, [])


def test_a_clock_that_begins_again_does_not_put_snapshots_off() -> None:
    policy = Barrier(10, by="seconds")
    state, _ = after(
        EpochBegins(epoch=0, seconds=1000.0),
        part(A),
        part(B),
        CompleteRecorded(number=0),
        EpochBegins(epoch=1, seconds=5.0),
        policy=policy,
    )
    asked = after(EpochBegins(epoch=2, seconds=16.0), policy=policy, state=state)[1]
    assert asked == [BeginSnapshot(number=1, hold_sources=False)]


def test_a_restarted_one_numbers_on() -> None:
    asked = after(EpochBegins(epoch=41), state=resumed(4, 40))[1]
    assert asked == [BeginSnapshot(number=5, hold_sources=False)]
