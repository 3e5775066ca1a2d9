"""Who speaks, who is empty: the machine of copies against what must always hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tether.protocols.copies import Seats, promoted, reported, seated


@st.composite
def placings(draw):
    slots = draw(st.integers(1, 5))
    copied = draw(st.lists(st.integers(0, slots - 1), unique=True))
    places = draw(
        st.lists(st.sampled_from("abc"), min_size=slots + len(copied), max_size=slots + len(copied))
    )
    return slots, copied, places


@given(placings())
def test_copies_are_apart_wherever_they_can_be(case) -> None:
    slots, copied, places = case
    seats = seated(slots, copied, places)
    # So many pairs of seats on different executors are there if no executor holds too many.
    held = [min(places.count(one), len(copied)) for one in set(places)]
    assert (seats is not None) == (sum(held) >= 2 * len(copied))
    if seats is None:
        return
    assert [seats.runs[voice] for voice in seats.voices] == list(range(slots))
    assert sorted(seats.runs[seat] for seat in seats.copies) == sorted(copied)
    for seat in seats.copies:
        assert places[seat] != places[seats.voices[seats.runs[seat]]]
    assert seats.empty == seats.copies
    assert all(len(each) == 1 + (slot in copied) for slot, each in enumerate(seats.targets()))


@given(placings(), st.data())
def test_whoever_speaks_has_the_state_through_any_losses(case, data) -> None:
    slots, copied, places = case
    seats = seated(slots, copied, places)
    if seats is None:
        return
    everyone = range(len(seats.runs))
    holding = set(seats.voices)  # who has the state, by what has happened to each seat
    for step in range(6):
        filled = {seat for seat in seats.empty if data.draw(st.booleans())}
        stay = {seat for seat in seats.copies if seat in seats.lineages}
        seats = reported(seats, dict.fromkeys(filled | stay, f"{step}"))
        holding |= filled
        gone = data.draw(st.sets(st.sampled_from(list(everyone))))
        holding -= gone
        after = promoted(seats, holding)
        stuck = any(not set(each) & holding for each in seats.targets())
        assert (after is None) == stuck
        if after is None:
            return
        assert after.runs == seats.runs
        for slot, voice in enumerate(after.voices):
            assert voice in holding
            assert after.runs[voice] == slot
            if seats.voices[slot] in holding:
                assert voice == seats.voices[slot]  # nobody is replaced who is there
        assert set(after.lineages) == holding - set(after.voices)
        seats = after


def test_a_copy_that_missed_an_epoch_is_empty() -> None:
    seats = Seats(runs=(0, 0), voices=(0,), lineages={1: "a"})
    assert reported(seats, {}).empty == (1,)
    assert promoted(reported(seats, {}), {1}) is None
