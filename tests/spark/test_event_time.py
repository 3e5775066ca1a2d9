"""The stream's clock: it never falls back, and ends every window once."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tether.backup.commits import CommitRecord
from tether.backup.history import CommitHistory
from tether.core.windows import Hopping
from tether.engine.event_time import advance
from tether.engine.messages import StreamClock
from tether.engine.query.clocks import clock_commit, clock_has_news, stored_clock
from tether.engine.slot.windows import ended_windows
from tether.policies.approximate import Approximate

times = st.floats(0, 500)
spans = st.one_of(st.none(), st.tuples(times, times).map(lambda pair: (min(pair), max(pair))))


@given(
    epochs=st.lists(st.lists(spans, min_size=1, max_size=2), min_size=1, max_size=20),
    lateness=st.sampled_from([0.0, 5.0, 100.0]),
)
def test_the_clock_never_falls_back_and_ends_each_window_once(
    epochs: list[list[tuple[float, float] | None]], lateness: float
) -> None:
    clocks = [StreamClock()]
    for slots in epochs:
        clocks.append(advance(clocks[-1], slots, lateness))
    newest = [clock.newest for clock in clocks if clock.newest is not None]
    assert newest == sorted(newest)
    for before, after in pairwise(clocks[1:]):
        if before.watermark is not None:
            assert after.passed == before.watermark <= after.watermark  # type: ignore[operator]
    window = Hopping(30)
    ends = [w.end for c in clocks for w in ended_windows(window, 0, 0, 0, c)]
    assert ends == sorted(set(ends))
    oldest = next((slots for slots in epochs if any(slots)), None)
    if oldest is not None:
        first = min(span[0] for span in oldest if span is not None)
        last = clocks[-1].watermark
        assert last is not None
        assert set(window.ends(after=first, upto=last)) <= set(ends)


@given(
    epochs=st.lists(st.lists(spans, min_size=1, max_size=2), min_size=2, max_size=20),
    lateness=st.sampled_from([0.0, 5.0, 100.0]),
    deaths=st.sets(st.integers(0, 19), max_size=4),
)
def test_drivers_that_die_end_the_windows_that_one_would(
    epochs: list[list[tuple[float, float] | None]], lateness: float, deaths: set[int]
) -> None:
    """Under an approximate policy the clock is stored only where windows have ended, or it is new."""
    operator: Any = SimpleNamespace(
        name="op", window=Hopping(30), policy=Approximate(10, window=Hopping(30))
    )

    def ended(deaths: set[int]) -> list[tuple[int, float]]:
        history, clock, ends = CommitHistory(), StreamClock(), []
        for epoch, slots in enumerate(epochs):
            if epoch in deaths:
                clock = stored_clock(history, operator, epoch)
            ends += [(epoch, w.end) for w in ended_windows(operator.window, epoch, 0, 0, clock)]
            before, clock = clock, advance(clock, slots, lateness)
            if clock_has_news(operator, before, clock):
                commit = clock_commit(clock, epoch)
                history.apply(CommitRecord(epoch=epoch, run="r", slots={"op.clock/0": commit}))
        return ends

    died, alone = [end for _, end in ended(deaths)], [end for _, end in ended(set())]
    assert died == sorted(set(died))
    # After a death the clock may lag, by rows that it has not heard of; it ends nothing else.
    assert died == alone[: len(died)]
