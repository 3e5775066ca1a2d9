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
