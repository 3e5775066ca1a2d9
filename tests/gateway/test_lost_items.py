"""The account of a loss, on paper: what a restart can know, and what senders add when they are back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.protocols.items import (
    ItemsArrived,
    ItemsSaved,
    ReceiverState,
    Replay,
    receive,
    recovered,
)
from tether.protocols.lost_items import MarkedRun, after_loss, came_again, heard_after_loss


def test_what_was_saved_early_is_not_saved_again() -> None:
    state, _ = receive(ReceiverState(), ItemsArrived(sender="a", first=1, count=5), 9)
    state, asked = receive(state, ItemsSaved(upto=4), 9)
    assert (state.at_risk, asked) == (1, ())
    state, _ = receive(state, ItemsSaved(upto=99), 9)
    assert state.backed_up == 5


def test_numbers_that_somebody_knows_are_not_given_again() -> None:
    state = recovered(ReceiverState(), Replay(first=1, last=4), used=9)
    _, asked = receive(state, ItemsArrived(sender="a", first=1, count=1), 9)
    assert asked[0].first == 10


def test_a_power_cut_costs_l_and_no_sender_may_miss_more() -> None:
    lost = after_loss(safe=4, shown=6, runs=None, l=10)
    assert (lost.at_most, lost.first, lost.last) == (10, 5, 6)
    assert came_again(lost, "a", heard=2, first=13) == (lost, True)
    assert came_again(lost, "a", heard=2, first=14) == (lost, False)


sends = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=12)


@given(sends, st.integers(0, 40), st.integers(0, 40), st.data())
def test_the_figure_is_never_too_small_and_exact_when_all_are_back(
    batches: list[tuple[str, int]], safe: int, shown: int, data: st.DataObject
) -> None:
    runs, heard, number = [], {}, 0
    for sender, count in batches:
        runs.append(MarkedRun(sender, heard.get(sender, 0) + 1, number + 1, count))
        heard[sender] = heard.get(sender, 0) + count
        number += count
    safe, shown = min(safe, number), min(shown, number)
    of = {  # the receiver's number of each item
        (run.sender, run.first + at): run.number + at for run in runs for at in range(run.items)
    }
    # Acknowledgements arrive in order, and up to any point.
    acked = {sender: data.draw(st.integers(0, upto)) for sender, upto in heard.items()}
    truly = sum(at > safe and item[1] <= acked[item[0]] for item, at in of.items())

    lost = after_loss(safe=safe, shown=shown, runs=runs, l=99)
    known = heard_after_loss({}, safe, shown, runs)
    assert lost.at_most >= truly
    taken = set()
    for sender in data.draw(st.permutations(sorted(heard))):
        first = acked[sender] + 1
        if sender in lost.gaps:
            lost, allowed = came_again(lost, sender, known.get(sender, 0), first)
            assert allowed
        taken |= {
            (sender, at) for at in range(max(first, known.get(sender, 0) + 1), heard[sender] + 1)
        }
        assert lost.at_most >= truly
    # Nothing that a reader may have is taken again; what is in the figure beyond the truth is only
    # what had been shown and was not acknowledged.
    assert all(of[item] > max(safe, shown) for item in taken)
    doubtful = sum(safe < at <= shown and item[1] > acked[item[0]] for item, at in of.items())
    assert lost.at_most == truly + doubtful


@pytest.mark.parametrize("first", [12, 40])
def test_a_sender_cannot_leave_out_what_it_never_sent(first: int) -> None:
    lost = after_loss(safe=4, shown=4, runs=[MarkedRun("a", 1, 1, 10)], l=100)
    assert came_again(lost, "a", heard=4, first=first) == (lost, False)
