"""Rows of two kinds: what sinks are given, what a change-feed directory holds, and how it is read."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tether
from tether.core.errors import BackupUnreadableError, BadValueError
from tether.spark.changes.columns import CHANGE_COLUMNS, Mark
from tether.spark.changes.feed_log import Commit, FeedLog, live
from tether.spark.changes.outlet import outlet_for

from .counting import CountingQuery, skewed_keys


def frame(spark, **counts):
    return spark.createDataFrame(list(counts.items()), "word string, count int")


def shown(rows, *columns):
    names = columns or ("word", "count", "_change_type", "_stability")
    return sorted(tuple(row[name] for name in names) for row in rows)


def of(df):
    return [row.asDict() for row in df.collect()]


def story_of_two_epochs(spark, sink, work):
    """Epoch 0 stable; epoch 1 tentative, then corrected; epoch 2 still tentative."""
    outlet = outlet_for(sink, False, str(work / "checkpoint"), 0)
    outlet(frame(spark, a=1), 0)
    guess = Mark("tentative", 1, 0.5)
    outlet.give(frame(spark, a=1, b=7, c=3), 1, guess)
    outlet.give(frame(spark, a=5), 2, Mark("tentative", 2, 0.5))
    assert outlet.outstanding() == [1, 2]
    outlet.give(frame(spark, a=2, b=7, d=4), 1, Mark("stable", 2))
    outlet.settle(1)
    assert outlet.outstanding() == [2]
    return outlet


CORRECTION = [
    ("a", 1, "update_preimage", "tentative"),
    ("a", 2, "update_postimage", "stable"),
    ("b", 7, "update_postimage", "stable"),
    ("b", 7, "update_preimage", "tentative"),
    ("c", 3, "delete", "stable"),
    ("d", 4, "insert", "stable"),
]


def test_a_feed_holds_both_kinds_and_survives_what_a_crash_leaves(spark, tmp_path):
    path = str(tmp_path / "changes")
    outlet = story_of_two_epochs(spark, tether.to_changes(path, key="word"), tmp_path)
    stable = of(tether.read_changes(spark, path, "stable"))
    assert shown(stable, "word", "count", "_epoch", "_fidelity") == [
        ("a", 1, 0, 1.0),
        ("a", 2, 1, 1.0),
        ("b", 7, 1, 1.0),
        ("d", 4, 1, 1.0),
    ]
    newest = of(tether.read_changes(spark, path))
    assert shown(newest, "word", "count", "_epoch", "_stability")[:3] == [
        ("a", 1, 0, "stable"),
        ("a", 2, 1, "stable"),
        ("a", 5, 2, "tentative"),
    ]
    history = of(tether.read_changes(spark, path, "history"))
    assert [name for name in history[0] if name.startswith("_")] == list(CHANGE_COLUMNS)
    assert shown(row for row in history if row["_commit_version"] == 2 and row["_epoch"] == 1) == (
        CORRECTION
    )
    # A crash leaves rows that no commit names: not read, and swept by the next writer.
    shutil.copytree(next(tmp_path.glob("changes/rows-2-*")), tmp_path / "changes/rows-9-stable-x")
    assert shown(of(tether.read_changes(spark, path))) == shown(newest)
    # An epoch that is run again is in it already, and stays as it is.
    again = outlet_for(tether.to_changes(path, key="word"), False, str(tmp_path / "checkpoint"), 0)
    again(frame(spark, a=99), 0)
    assert shown(of(tether.read_changes(spark, path, "stable"))) == shown(stable)
    assert not (tmp_path / "changes/rows-9-stable-x").exists()
    again.give(frame(spark, a=98), 0, Mark("tentative", 3))
    assert shown(of(tether.read_changes(spark, path))) == shown(newest)
    with pytest.raises(BadValueError, match="other columns"):
        again(spark.createDataFrame([(1,)], "n int"), 7)
    # As a stream: stable rows only, and the whole history.
    for view, want in (("stable", stable), ("history", history)):
        got: list[dict] = []
        rows = tether.read_changes(spark, path, view, streaming=True)
        query = rows.writeStream.foreachBatch(lambda df, _, got=got: got.extend(of(df)))
        query = query.option("checkpointLocation", str(tmp_path / view)).start()
        query.processAllAvailable()
        query.stop()
        assert shown(got) == shown(want)
    # The query goes back to a snapshot as a whole: the epochs come again.
    outlet.take_back(1)
    outlet(frame(spark, a=3), 1)
    assert shown(of(tether.read_changes(spark, path, "stable")), "word", "count") == [
        ("a", 1),
        ("a", 3),
    ]
    undone = [r for r in of(tether.read_changes(spark, path, "history")) if r["_epoch"] == 2]
    assert shown(undone, "_change_type", "count") == [("delete", 5), ("insert", 5)]
    (tmp_path / f"changes/_changes/{1:020d}.json").unlink()
    with pytest.raises(BackupUnreadableError, match="not whole"):
        tether.read_changes(spark, path)


def test_memory_functions_and_plain_sinks_see_what_they_asked_for(spark, tmp_path):
    memory = tether.to_memory(key="word")
    story_of_two_epochs(spark, memory, tmp_path / "memory")
    assert shown(memory.rows("stable"), "word", "count")[:2] == [("a", 1), ("a", 2)]
    assert ("a", 5, "insert", "tentative") in shown(memory.rows())
    assert set(CORRECTION) <= set(shown(memory.rows("history")))
    given: list[tuple] = []

    def sink(df, epoch):
        given.append((epoch, of(df)))

    # A function, with no key: rows are deleted and inserted.
    outlet = outlet_for(sink, True, str(tmp_path / "function"), 0)
    outlet.give(frame(spark, a=1), 3, Mark("tentative", 3, 0.25))
    outlet.give(frame(spark, a=2), 3, Mark("stable", 5))
    assert [epoch for epoch, _ in given] == [3, 3]
    assert shown(given[1][1]) == [("a", 1, "delete", "stable"), ("a", 2, "insert", "stable")]
    given.clear()
    # One that did not ask: stable rows only, just as they are.
    plain = outlet_for(sink, False, str(tmp_path / "plain"), 0)
    plain.give(frame(spark, a=1), 3, Mark("tentative", 3, 0.25))
    plain.give(frame(spark, a=2), 3, Mark("stable", 5))
    assert given == [(3, [{"word": "a", "count": 2}])]
    with pytest.raises(BadValueError, match="key"):
        outlet_for(sink, ["nope"], str(tmp_path / "n"), 0)(frame(spark, a=1), 0)
    named_alike = frame(spark, a=1).withColumnRenamed("count", "_epoch")
    with pytest.raises(BadValueError, match="_epoch"):
        outlet_for(sink, True, str(tmp_path / "n"), 0)(named_alike, 0)
    with pytest.raises(BadValueError, match="tentative"):
        outlet_for(sink, "word", str(tmp_path / "n"), 0)


def test_formats_of_sparks_show_what_a_row_is(spark, tmp_path):
    sink = tether.to_format(
        "json", path=str(tmp_path / "rows")
    )  # "console" prints the same columns
    outlet = outlet_for(sink, True, str(tmp_path / "checkpoint"), 0)
    outlet.give(frame(spark, a=1), 3, Mark("tentative", 3, 0.25))
    outlet.give(frame(spark, a=2), 3, Mark("stable", 5))
    written = spark.read.json(str(tmp_path / "rows"))
    told = [tuple(row[name] for name in ("count", *CHANGE_COLUMNS)) for row in written.collect()]
    assert sorted(told) == [
        (1, "delete", 5, "stable", 3, 1.0),
        (1, "insert", 3, "tentative", 3, 0.25),
        (2, "insert", 5, "stable", 3, 1.0),
    ]


KINDS = """
SELECT * FROM VALUES
  (1, 'a', 1.5D, 1.25BD, DATE'2020-02-03', TIMESTAMP'2020-02-03 04:05:06.789', X'01', true),
  (1, 'a', 2.5D, 1.25BD, DATE'2020-02-03', TIMESTAMP'2020-02-03 04:05:06.789', X'01', true),
  (NULL, 'b', double('NaN'), NULL, NULL, NULL, NULL, NULL),
  ({0}, 'c', -0.0D, 2.50BD, DATE'1900-01-01', TIMESTAMP'1900-01-01 00:00:00', X'', false)
AS t(id, name, d, money, day, at, raw, flag)
"""


def test_few_rows_are_corrected_like_many(spark, tmp_path, monkeypatch):
    def history(few, usual):
        monkeypatch.setattr("tether.spark.changes.outlet.FEW", few)
        memory = tether.to_memory(key=["id", "name", "d"])
        outlet = outlet_for(memory, False, str(tmp_path / f"{few}-{usual}"), 0)
        outlet.expect(usual)
        # A driver has died before this one had kept all.
        half = tmp_path / f"{few}-{usual}/tether/tentative/0/4/given/part-9.parquet"
        half.parent.mkdir(parents=True)
        half.write_bytes(b"half")
        outlet.give(spark.sql(KINDS.format(7)), 4, Mark("tentative", 4, 0.5))
        outlet.give(spark.sql(KINDS.format(8)), 4, Mark("stable", 6))
        assert len(outlet.outstanding()) == 1
        return sorted(repr(sorted(row.items())) for row in memory.rows("history"))

    by_spark = history(-1, None)
    assert history(20_000, None) == by_spark
    assert history(20_000, 4) == by_spark


def test_every_policys_output_goes_this_way(spark, tmp_path):
    counting = CountingQuery(spark, tmp_path, skewed_keys(2, 50, 9, seed=3))
    memory = tether.to_memory()
    query = counting.start(tether.Approximate(20), output=memory, trigger={"availableNow": True})
    query.awaitTermination()
    rows = memory.rows("history")
    assert {(r["_change_type"], r["_stability"], r["_fidelity"]) for r in rows} == {
        ("insert", "stable", 1.0)
    }
    assert all(r["_epoch"] == r["_commit_version"] for r in rows)
    latest = {r["k"]: r["count"] for r in sorted(rows, key=lambda r: r["_epoch"])}
    assert latest == counting.truth


def test_what_is_refused(spark, tmp_path):
    with pytest.raises(BadValueError, match="no changes"):
        tether.read_changes(spark, str(tmp_path))
    with pytest.raises(BadValueError, match="view"):
        tether.read_changes(spark, str(tmp_path), "latest")


commits = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from(["stable", "tentative", "take-back"])), max_size=12
)


@given(commits)
def test_live_commits_are_those_after_every_take_back(given_commits):
    made = [
        Commit(version=n, epoch=epoch, kind=kind) for n, (epoch, kind) in enumerate(given_commits)
    ]
    kept = live(made)
    for one in made:
        voided = any(
            back.kind == "take-back" and back.version > one.version and back.epoch <= one.epoch
            for back in made
        )
        assert (one in kept) == (one.kind != "take-back" and not voided)


def test_half_a_commit_is_never_read_as_one(tmp_path):
    log = FeedLog(str(tmp_path / "feed"))
    log.set_schema("{}")
    log.append(0, "stable")
    (tmp_path / f"feed/_changes/{1:020d}.json.tmp").write_bytes(b'{"version": 1')
    assert [one.version for one in FeedLog(str(tmp_path / "feed")).commits()] == [0]
    (tmp_path / f"feed/_changes/{1:020d}.json").write_bytes(b'{"version": 1')
    with pytest.raises(BackupUnreadableError, match="Commit 1"):
        FeedLog(str(tmp_path / "feed")).commits()
