"""The sender's side: never more than γ at risk, never stuck."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tether.protocols.item_sender import (
    AcceptItems,
    ItemsAcked,
    ItemsOffered,
    ReceiverBack,
    ReleaseItems,
    SenderInstruction,
    SenderState,
    SendItems,
    WaitForAcks,
    send,
)


def test_a_sender_stops_at_gamma_and_goes_on_with_acknowledgements() -> None:
    state, asked = send(SenderState(), ItemsOffered(count=3), 2)
    assert asked == (SendItems(first=1, last=2), AcceptItems(upto=2), WaitForAcks(count=1))
    assert send(state, ItemsOffered(count=1), 2) == (state, (WaitForAcks(count=1),))
    state, asked = send(state, ItemsAcked(upto=1), 2)
    assert asked == (ReleaseItems(upto=1),)
    state, asked = send(state, ItemsOffered(count=1), 2)
    assert asked == (SendItems(first=3, last=3), AcceptItems(upto=3))
    assert state.at_risk == 2


def test_below_one_an_item_is_accepted_only_when_it_has_come() -> None:
    for gamma in (0, 0.9):
        state, asked = send(SenderState(), ItemsOffered(count=1), gamma)
        assert asked == (SendItems(first=1, last=1),)
        assert state.at_risk == 0
        state, asked = send(state, ItemsAcked(upto=1), gamma)
        assert asked == (ReleaseItems(upto=1), AcceptItems(upto=1))
        assert state.at_risk == 0


def test_unacknowledged_items_are_sent_again_to_a_receiver_that_is_back() -> None:
    state, _ = send(SenderState(), ItemsOffered(count=4), math.inf)
    state, _ = send(state, ItemsAcked(upto=1), math.inf)
    assert send(state, ReceiverBack(), math.inf)[1] == (SendItems(first=2, last=4, again=True),)
    assert send(SenderState(), ReceiverBack(), 5)[1] == ()


def test_old_and_impossible_acknowledgements_change_nothing_untrue() -> None:
    state, _ = send(SenderState(), ItemsOffered(count=4), 9)
    state, _ = send(state, ItemsAcked(upto=3), 9)
    assert send(state, ItemsAcked(upto=2), 9) == (state, ())
    state, _ = send(state, ItemsAcked(upto=99), 9)
    assert state.acked == 4


@given(
    gamma=st.sampled_from([0, 0.5, 1, 1.9, 3, 10, math.inf]),
    moves=st.lists(st.tuples(st.sampled_from(["offer", "ack", "back"]), st.integers(0, 6))),
)
def test_at_most_gamma_are_at_risk_and_all_offered_go_in_the_end(gamma: float, moves: list) -> None:
    state, offered, waiting = SenderState(), 0, 0
    for kind, size in [*moves, *[("ack", 10**6), ("offer", 0)] * 200]:
        if kind == "offer":
            offered += size
            event = ItemsOffered(count=waiting + size)
        else:
            event = ItemsAcked(upto=state.acked + size) if kind == "ack" else ReceiverBack()
        state, asked = send(state, event, gamma)
        if kind == "offer":
            waiting = sum(one.count for one in asked if isinstance(one, WaitForAcks))
            assert state.sent + waiting == offered
        assert state.at_risk <= gamma
        assert state.acked <= state.sent
        assert state.accepted <= state.sent
        words = msgspec.msgpack.encode(asked)
        assert msgspec.msgpack.decode(words, type=tuple[SenderInstruction, ...]) == asked
    assert waiting == 0
    assert state.sent == offered


def test_below_one_many_may_be_under_way_but_none_is_at_risk() -> None:
    state, asked = send(SenderState(), ItemsOffered(count=5), 0, window=3)
    assert asked == (SendItems(first=1, last=3), WaitForAcks(count=2))
    assert state.at_risk == 0
    state, asked = send(state, ItemsAcked(upto=2), 0, window=3)
    assert asked == (ReleaseItems(upto=2), AcceptItems(upto=2))
    assert send(state, ItemsOffered(count=5), 0, window=3)[1][0] == SendItems(first=4, last=5)
