"""The feed in memory: bounded, summed right, failures put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.observe.facts import EpochFigures, Standing, Told
from tether.observe.feed import EVENTS_KEPT, Feed
from tether.observe.history import COARSE, FINE, EpochHistory
from tether.observe.slot_history import SlotHistory
from tether.observe.story import Event, Story
from tether.testing.feeds import MadeUpQuery


def made_up(slots: int = 6, epochs: int = 60, fail_at: int | None = 30) -> Feed:
    query = MadeUpQuery(Feed(), slots=slots, began=1000.0)
    for number in range(epochs):
        if number == fail_at:
            query.fail()
        query.epoch()
    return query.feed


@given(st.lists(st.integers(0, 50), min_size=1, max_size=4000))
def test_joined_epochs_keep_every_sum_in_bounded_memory(rows: list[int]) -> None:
    history = EpochHistory()
    for epoch, number in enumerate(rows):
        history.add(
            EpochFigures(
                at=epoch + 1.0,
                epoch=epoch,
                rows_in=number,
                spent=float(number),
                backups={"theta": 1},
            )
        )
    entries = history.entries()
    assert len(entries) <= FINE + COARSE
    assert sum(one.epochs for one in entries) == len(rows) == history.total.epochs
    assert sum(one.rows_in for one in entries) == sum(rows) == history.total.rows_in
    assert max(one.spent or 0 for one in entries) == max(rows)
    assert sum(one.backups.get("theta", 0) for one in entries) == len(rows)
    assert [one.at for one in entries] == sorted(one.at for one in entries)
    assert [one.epochs for one in entries[-FINE:]] == [1] * min(FINE, len(entries))


def test_an_amount_without_a_limit_stays_without_one() -> None:
    history = EpochHistory()
    for spent in (1.0, None, 2.0):
        history.add(EpochFigures(at=1.0, epoch=0, spent=spent))
    assert history.total.spent is None


def test_events_are_bounded_and_numbered() -> None:
    feed = Feed()
    story = Story(feed.event)
    for number in range(EVENTS_KEPT + 10):
        story.add("resent", "again", number)
    events = feed.events()
    assert len(events) == EVENTS_KEPT
    assert [number for number, _ in events] == list(range(11, EVENTS_KEPT + 11))
    assert [event.number for _, event in events] == list(range(11, EVENTS_KEPT + 11))
    assert feed.events(after=EVENTS_KEPT + 9) == events[-1:]


def test_backups_beyond_some_of_one_epoch_are_no_events() -> None:
    feed = Feed()
    for slot in range(1000):
        feed.event(Event(at=1.0, epoch=4, what="backup", cause="theta", slot=slot))
    assert len(feed.events()) == 64
    feed.event(Event(at=1.0, epoch=4, what="recovery", cause="lost", slot=0))
    assert len(feed.events()) == 65


def test_one_failure_for_all_slots_of_an_epoch() -> None:
    feed = made_up(slots=6)
    [failure] = feed.failures_after()
    assert len(failure.slots) == 2  # of three executors
    assert failure.lost == pytest.approx(sum(one.lost or 0 for one in failure.slots))
    assert 0 < failure.lost <= failure.allowed
    assert list(failure.seconds) == ["find", "read", "apply", "finish"]
    assert failure.pause is not None
    assert failure.pause > 1.6
    assert feed.history.total.losses == 2
    last = feed.history.newest
    assert last is not None
    assert last.spent == pytest.approx(failure.lost)


def test_a_later_run_that_fails_in_the_same_epoch_is_another_failure() -> None:
    feed = made_up(epochs=5, fail_at=None)
    lost = Event(at=1.0, epoch=3, what="recovery", cause="lost", slot=0, detail={"bound": None})
    feed.take(Told(event=lost))
    assert feed.query is not None
    import msgspec

    feed.take(msgspec.structs.replace(feed.query, run="another"))
    feed.take(Told(event=lost))
    assert [one.number for one in feed.failures_after()] == [1, 2]
    assert feed.failures_after()[0].lost is None  # nobody knows how much


def test_a_slots_course_is_a_ring() -> None:
    feed = made_up(slots=3, epochs=2100)
    course = feed.course("count", 2)
    assert course is not None
    assert len(course.at) == len(course.divergence) == 2000
    assert course.epoch == list(range(100, 2100))
    assert all(d is not None and t is not None and d <= t for d, t in zip(*course[2:], strict=True))
    assert feed.course("count", 3) is None
    assert feed.course("other", 0) is None


def test_slots_of_another_shape_begin_another_ring() -> None:
    history = SlotHistory()
    for slots in (3, 5):
        feed = Feed()
        query = MadeUpQuery(feed, slots=slots, began=0.0)
        query.epoch()
        assert feed.slots.now is not None
        history.add(feed.slots.now)
    assert history.course(0, 4) is not None


def test_listeners_and_standing() -> None:
    feed, heard = Feed(), []
    feed.listen(heard.append)
    feed.take(Standing(at=1.0))
    assert heard == [feed.standing]
