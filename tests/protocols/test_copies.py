"""Who speaks, who is empty: the machine of copies against what must always hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tether.protocols.copies import (
    IDLE,
    Seats,
    beside,
    misplaced,
    moved,
    promoted,
    reported,
    seated,
    seats_needed,
    silent,
)


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


@given(st.integers(1, 6), st.data(), st.integers(2, 6))
def test_on_standby_sit_copies_and_nobody_who_speaks(slots, data, executors) -> None:
    """If a host spreads as many seats as are asked for evenly, there is a place for every copy."""
    copied = data.draw(st.lists(st.integers(0, slots - 1), unique=True, min_size=1))
    standby = data.draw(st.integers(1, executors - 1))
    number = seats_needed(slots, len(copied), executors, standby)
    places = [f"e{seat % executors}" for seat in range(number)]
    seats = seated(slots, copied, places, standby)
    assert seats is not None
    speaking = {places[seat] for seat in seats.voices}
    silent_at = {places[seat] for seat in seats.copies}
    assert not speaking & silent_at
    assert len(silent_at) <= standby
    assert sorted(seats.runs[seat] for seat in seats.copies) == sorted(copied)
    assert not misplaced(seats, dict(enumerate(places)), standby)
    # A failure of all executors but those leaves every copy, and so every slot that has one.
    ready = reported(seats, dict.fromkeys(seats.copies, "x"))
    after = promoted(ready, set(seats.copies), partly=True)
    assert after is not None
    assert silent(ready, set(seats.copies)) == tuple(sorted(set(range(slots)) - set(copied)))
    assert all(after.voices[slot] in seats.copies for slot in copied)


@given(placings(), st.data())
def test_whoever_can_speak_does_and_the_others_are_named(case, data) -> None:
    slots, copied, places = case
    seats = seated(slots, copied, places) or beside(slots, copied, places)
    filled = data.draw(st.sets(st.sampled_from(list(seats.copies)))) if seats.copies else set()
    seats = reported(seats, dict.fromkeys(filled, "x"))
    there = data.draw(st.sets(st.sampled_from(range(len(seats.runs)))))
    holding = there & (set(seats.voices) | filled)
    after, lost = promoted(seats, there, partly=True), silent(seats, there)
    assert after is not None
    for slot, each in enumerate(seats.targets()):
        assert (slot in lost) == (not set(each) & holding)
        if slot in lost:
            assert after.voices[slot] == seats.voices[slot]  # it is where the slot will come back
        else:
            assert after.voices[slot] in holding
    assert (promoted(seats, there) is None) == bool(lost)


@given(placings(), st.data())
def test_a_copy_that_moves_is_empty_and_all_others_stay(case, data) -> None:
    slots, copied, places = case
    seats = seated(slots, copied, places)
    if seats is None or not copied:
        return
    seats = reported(seats, dict.fromkeys(seats.copies, "x"))
    seat = data.draw(st.sampled_from(list(seats.copies)))
    slot = data.draw(st.sampled_from([IDLE, *range(slots)]))
    after = moved(seats, seat, slot)
    assert after.voices == seats.voices
    assert after.runs[seat] == slot
    assert after.empty == ((seat,) if slot != IDLE else ())
    assert set(after.lineages) == set(seats.lineages) - {seat}
    assert after.left == {seat: seats.runs[seat]}
    assert reported(after, {}).left == {}
