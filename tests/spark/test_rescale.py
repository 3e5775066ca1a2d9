"""Another number of slots at a restart, on Spark: keys are found again by Spark's own hash."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pyarrow as pa

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.testing.epochs import read_epochs, write_epochs

SCHEMA = "word string, n int, day date"


def test_a_restart_with_other_slots_goes_on_exactly(spark, tmp_path):
    days = [dt.date(2026, 1, 1), None]
    table = pa.table(
        {
            "word": [f"w{number % 37}" if number % 11 else None for number in range(400)],
            "n": pa.array([number % 5 for number in range(400)], pa.int32()),
            "day": [days[number % 2] for number in range(400)],
        }
    )
    truth = Counter(tuple(row.values()) for row in table.to_pylist())
    answers = {}
    for run, slots in enumerate([2, 3]):
        write_epochs(tmp_path / "in", [table], first=run)
        query = (
            tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
            .apply(KeyedAggregate(), key=["word", "n", "day"], parallelism=slots)
            .start(
                lambda df, _: answers.update(
                    {tuple(row)[:3]: row["count"] for row in df.collect()}
                ),
                tolerance=tether.Approximate(1000),
                backup=str(tmp_path / "backup"),
                checkpoint=str(tmp_path / "checkpoint"),
                allow_changed=["slots"],
                trigger={"availableNow": True},
            )
        )
        query.awaitTermination()
        assert query.bound().spent == 0
    assert answers == {key: 2 * count for key, count in truth.items()}
    assert [event.what for event in query.story()].count("rescaled") == 1


def test_the_number_changes_while_the_query_runs(spark, tmp_path):
    table = pa.table({"word": [f"w{number % 37}" for number in range(400)]})
    write_epochs(tmp_path / "in", [table])
    answers = {}

    def start():
        return (
            tether.stream(read_epochs(spark, tmp_path / "in", "word string"))
            .apply(KeyedAggregate(), key="word", parallelism=2, name="words")
            .start(
                lambda df, _: answers.update({row.word: row["count"] for row in df.collect()}),
                tolerance=tether.Approximate(1000),
                backup=str(tmp_path / "backup"),
                checkpoint=str(tmp_path / "checkpoint"),
            )
        )

    query = start()
    query.processAllAvailable()
    query.rescale("words", 3)
    write_epochs(tmp_path / "in", [table], first=1)
    query.processAllAvailable()
    assert len(query.slots()) == 3
    assert query.table("totals").count() == 37
    assert query.bound().spent == 0
    query.stop()
    write_epochs(tmp_path / "in", [table], first=2)
    query = start()  # the program still says 2
    query.processAllAvailable()
    assert len(query.slots()) == 3
    query.stop()
    assert answers == {
        word: 3 * count for word, count in Counter(table["word"].to_pylist()).items()
    }
