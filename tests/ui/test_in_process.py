"""The feed of the shipped runtime, on the stand-in for Spark: through a loss, a restart, a snapshot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.testing.test_inprocess import EPOCHS, Job

import tether
from tether.chaos.faults import Fault
from tether.observe.reading import FeedReader

if TYPE_CHECKING:
    from pathlib import Path

ROWS = sum(map(len, EPOCHS))


def test_what_the_page_shows_is_what_the_query_says(tmp_path: Path) -> None:
    job = Job(tmp_path, ui={"port": 0, "quiet": True})
    query = job.start()
    query.processAllAvailable()
    query._driver.feed._stage.finish(30)
    assert query._page is not None
    with httpx.stream("GET", f"{query._page.address}api/stream", timeout=30) as answer:
        lines = (one for one in answer.iter_lines() if one.startswith("data: "))
        whole = json.loads(next(lines).removeprefix("data: "))
    bound, totals = query.bound(), query.totals()
    query.stop()
    feed = query.feed
    assert whole["query"]["name"] == "count"
    assert whole["actions"] == []  # no snapshots, nothing to heal, no drills
    assert len(whole["slots"]["slot"]) == 2
    total, last = feed.history.total, feed.history.newest
    assert last is not None
    assert (total.epochs, total.rows_in) == (len(EPOCHS), totals["rows"]) == (len(EPOCHS), ROWS)
    assert (last.promised, last.spent, last.worst) == (100, bound.spent, bound.worst_now)
    assert total.changed == sum(len(set(keys)) for keys in EPOCHS)
    assert "wrong by at most" in query._repr_html_()
    with pytest.raises(httpx.ConnectError):  # it ended with the query
        httpx.get(query._page.address)


def test_a_loss_and_a_restart_are_in_the_feed(tmp_path: Path) -> None:
    fault = Fault(
        point="before-attach", action="forget", epoch=3, slot=1, marker=str(tmp_path / "struck")
    )
    query = Job(tmp_path, faults=(fault,)).start()
    query.processAllAvailable()
    bound = query.bound()
    query.stop()
    [failure] = query.feed.failures_after()
    assert failure.epoch == 3
    [struck] = failure.slots
    assert (struck.operator, struck.slot, struck.what) == ("count", 1, "recovery")
    assert struck.lost == bound.spent
    assert 0 < struck.lost <= (struck.allowed or 0)
    assert failure.pause is not None
    reader = FeedReader(str(tmp_path / "backup"))
    reader.look()
    assert reader.feed.failures_after() == query.feed.failures_after()
    assert reader.feed.history.total == query.feed.history.total
    again = Job(tmp_path).start()
    again._driver.feed._stage.finish(30)
    assert len(again.feed.runs) == 2  # a page of the second run shows the first one too
    assert again.feed.failures_after() == query.feed.failures_after()
    again.stop()


def test_a_snapshot_that_is_asked_for(tmp_path: Path) -> None:
    query = Job(tmp_path, tolerance=tether.Barrier(20)).start()
    assert "snapshot" in query.feed.actions
    query.processAllAvailable()
    assert "next epoch" in query.feed.actions["snapshot"]()
    query.stop()
    assert query.feed.actions == {}
    approximate = Job(tmp_path / "other").start()
    with pytest.raises(tether.TetherError, match="No snapshot"):
        approximate.snapshot()
    approximate.stop()
