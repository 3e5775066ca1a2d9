"""The feed on disk: read back, torn, rotten, dropped, followed; in directories and object stores."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.observe import feed_log, segments
from tether.observe.facts import EpochFigures
from tether.observe.feed import Feed
from tether.observe.feed_log import FeedLog
from tether.observe.reading import FeedReader
from tether.observe.segments import FOLDER, line_of, read_lines
from tether.testing.feeds import MadeUpQuery

if TYPE_CHECKING:
    from pathlib import Path


class Written:
    """A made-up query whose feed is kept."""

    def __init__(self, url: str, run: str = "run-1", began: float = 1000.0, seed: int = 1) -> None:
        self.log = FeedLog(url, {}, run, lambda: self.feed.query)
        self.feed = Feed(self.log)
        self.query = MadeUpQuery(self.feed, slots=4, began=began, run=run, seed=seed)

    def epochs(self, number: int) -> None:
        for _ in range(number):
            self.query.epoch()

    def end(self) -> None:
        self.feed.close("stopped")
        self.log.flush(last=True)


@pytest.fixture(params=["directory", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "directory" else f"memory://feed-{tmp_path.name}"


def test_a_finished_query_is_read_back(place: str) -> None:
    written = Written(place)
    written.epochs(30)
    written.query.fail()
    written.epochs(3)
    written.end()
    reader = FeedReader(place)
    reader.look()
    feed = reader.feed
    assert feed.history.total == written.feed.history.total
    assert feed.epochs() == written.feed.epochs()
    assert feed.failures_after() == written.feed.failures_after()
    assert feed.slots.now == written.feed.slots.now
    assert feed.ended is not None
    assert (feed.ended.how, reader.bad) == ("stopped", 0)
    assert reader.look() == 0


def test_a_running_query_is_followed_over_a_restart(place: str) -> None:
    first = Written(place)
    first.epochs(5)
    first.log.flush(last=True)
    reader = FeedReader(place)
    reader.look()
    assert reader.feed.history.total.epochs == 5
    first.epochs(2)
    first.log.flush(last=True)  # and then it is killed
    reader.look()
    assert reader.feed.history.total.epochs == 7
    assert reader.feed.ended is None
    second = Written(place, run="run-2", began=2000.0, seed=2)
    second.epochs(3)
    second.end()
    reader.look()
    assert reader.feed.history.total.epochs == 10
    assert [run for _, run in reader.feed.runs] == ["run-1", "run-2"]
    assert reader.feed.ended is not None


def test_files_are_private(tmp_path: Path) -> None:
    written = Written(str(tmp_path))
    written.epochs(1)
    written.end()
    folder = tmp_path / FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())


def test_a_link_in_the_place_of_a_segment_is_not_followed(tmp_path: Path) -> None:
    written = Written(str(tmp_path / "there"))
    written.epochs(1)
    written.end()
    folder = tmp_path / "here" / FOLDER
    folder.mkdir(parents=True)
    [segment] = (tmp_path / "there" / FOLDER).iterdir()
    (folder / segment.name).symlink_to(segment)
    reader = FeedReader(str(tmp_path / "here"))
    assert reader.look() == 0


def test_elder_segments_are_dropped_and_sums_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_log._Directory, "segment_bytes", 20_000)
    monkeypatch.setattr(feed_log, "KEPT_BYTES", segments.SEGMENT_BYTES + 50_000)
    monkeypatch.setattr(feed_log._Directory, "pause", 0.0)
    written = Written(str(tmp_path))
    for _ in range(60):
        written.epochs(10)
        written.log.flush()
    written.end()
    kept = list((tmp_path / FOLDER).iterdir())
    assert 1 < len(kept) < 6
    reader = FeedReader(str(tmp_path))
    reader.look()
    assert reader.feed.history.total.epochs == 600
    assert reader.feed.history.total.rows_in == written.feed.history.total.rows_in
    assert sum(reader.feed.history.total.backups.values()) == sum(
        written.feed.history.total.backups.values()
    )


def test_a_store_out_of_reach_costs_nothing_but_the_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    written = Written(str(tmp_path / "file"))
    written.epochs(3)
    written.log.flush(last=True)
    assert "file" in written.log.trouble
    assert written.feed.history.total.epochs == 3
    (tmp_path / "file").unlink()
    written.end()  # the next try has everything
    assert written.log.trouble == ""
    reader = FeedReader(str(tmp_path / "file"))
    reader.look()
    assert reader.feed.history.total.epochs == 3


@given(st.data())
def test_torn_and_rotten_lines_are_left_out(data: st.DataObject) -> None:
    lines = [line_of(EpochFigures(at=float(n), epoch=n)) for n in range(8)]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    torn = read_lines(whole[:cut])
    assert [fact.epoch for fact in torn.facts] == list(range(len(torn.facts)))
    assert len(torn.facts) == whole[:cut].count(b"\n")
    assert torn.bad == 0
    at = data.draw(st.integers(0, len(whole) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    rotten = read_lines(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
    found = [fact.epoch for fact in rotten.facts]
    assert set(found) <= set(range(8))
    assert len(found) >= 6  # a line's end may have rotted, and with it two lines


def test_what_is_written_later_than_a_torn_tail_is_read(tmp_path: Path) -> None:
    written = Written(str(tmp_path))
    written.epochs(4)
    written.log.flush(last=True)
    [segment] = (tmp_path / FOLDER).iterdir()
    os.truncate(segment, segment.stat().st_size - 7)
    reader = FeedReader(str(tmp_path))
    reader.look()
    again = Written(str(tmp_path), run="run-2", began=3000.0)
    again.epochs(2)
    again.end()
    reader.look()
    assert reader.feed.ended is not None
    assert [run for _, run in reader.feed.runs] == ["run-1", "run-2"]
