"""A slot in a snapshot, step by step: what is blocked, copied, logged and let go."""

from __future__ import annotations

import pytest

from tether.core.graph import Channel, SlotId

from .alignment import (
    AlignmentError,
    BarrierCame,
    BlockChannel,
    CopyState,
    DropCopy,
    ForwardBarrier,
    ItemsCame,
    LogItems,
    ProcessItems,
    SlotAlignment,
    SnapshotGivenUp,
    UnblockChannels,
    WritePart,
    align,
)

ME = SlotId("sum", 0)
LEFT, RIGHT = (Channel(SlotId("map", n), ME) for n in range(2))
BACK = Channel(SlotId("end", 0), ME, feedback=True)
TWO, LOOP = frozenset([LEFT, RIGHT]), frozenset([LEFT, BACK])


def after(inputs: frozenset[Channel], *events: object) -> tuple[SlotAlignment, list[object]]:
    """State, and what the last event asked for."""
    state, asked = SlotAlignment(), ()
    for event in events:
        state, asked = align(state, event, inputs)  # type: ignore[arg-type]
    return state, list(asked)


def barrier(channel: Channel, number: int = 1) -> BarrierCame:
    return BarrierCame(channel=channel, number=number)


def test_items_behind_a_barrier_must_be_held_back() -> None:
    with pytest.raises(AlignmentError, match="blocked channel"):
        after(TWO, barrier(LEFT), ItemsCame(channel=LEFT))
    assert after(TWO, barrier(LEFT), ItemsCame(channel=RIGHT))[1] == [ProcessItems(channel=RIGHT)]


def test_the_copy_is_made_when_all_barriers_are_there() -> None:
    state, asked = after(TWO, barrier(LEFT), barrier(RIGHT))
    copied = [CopyState(number=1), ForwardBarrier(number=1), UnblockChannels()]
    assert asked == [BlockChannel(channel=RIGHT), *copied, WritePart(number=1)]
    assert state == SlotAlignment(over=1)


def test_items_in_flight_around_a_loop_are_logged_until_their_barrier_comes() -> None:
    state, asked = after(LOOP, barrier(LEFT))
    assert (state.copied, state.blocked) == (True, frozenset())
    assert WritePart(number=1) not in asked
    logged = [LogItems(channel=BACK), ProcessItems(channel=BACK)]
    assert after(LOOP, barrier(LEFT), ItemsCame(channel=BACK))[1] == logged
    assert after(LOOP, barrier(LEFT), barrier(BACK))[1] == [WritePart(number=1)]


def test_the_barrier_of_a_newer_snapshot_ends_the_older_one() -> None:
    state, asked = after(TWO, barrier(LEFT), barrier(RIGHT, 2))
    assert asked == [UnblockChannels(), BlockChannel(channel=RIGHT)]
    assert (state.number, state.marked, state.over) == (2, {RIGHT}, 1)
    # Only the newer one's own barriers count for it.
    assert after(TWO, barrier(LEFT), barrier(RIGHT, 2), barrier(LEFT, 1))[1] == []
    assert CopyState(number=2) in after(TWO, barrier(RIGHT, 2), barrier(LEFT, 2))[1]


def test_what_is_given_up_blocks_nobody_and_leaves_nothing() -> None:
    given_up = SnapshotGivenUp(number=1)
    assert after(TWO, barrier(LEFT), given_up) == (SlotAlignment(over=1), [UnblockChannels()])
    assert after(LOOP, barrier(LEFT), given_up) == (SlotAlignment(over=1), [DropCopy(number=1)])
    assert after(TWO, given_up, barrier(LEFT)) == (SlotAlignment(over=1), [])
