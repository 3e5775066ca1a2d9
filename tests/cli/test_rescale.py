"""``tether rescale``: the backup of a stopped query is divided by Spark's hash, without Spark."""

from __future__ import annotations

import json

import pyarrow as pa
from tests.testing.test_rescaling import SCHEMA, Count, counted
from typer.testing import CliRunner

import tether
from tether.cli.app import app
from tether.core.errors import BadValueError, ChangedProgramError
from tether.sources.folding import spark_hash
from tether.testing.fuzz.meaning import home
from tether.testing.inprocess import EpochSource, LocalSession

ROWS = [[7 * n % 23 for n in range(40)]] * 4
TRUTH = {key: ROWS[0].count(key) for key in set(ROWS[0])}


def by_spark(row, key, slots):
    """The slot of a row as Spark has it."""
    keys = pa.RecordBatch.from_pydict({name: pa.array([row[name]]) for name in key})
    return int(spark_hash.slots_of(keys, dict.fromkeys(key, "bigint"), slots)[0])


def lived(tmp_path, hashing, epochs):
    """A life of the query, whose program says two slots; what it counted, and in how many slots."""
    session = LocalSession(hashing)
    rows = [pa.RecordBatch.from_pydict({"k": keys}, SCHEMA) for keys in ROWS[:epochs]]
    query = (
        tether.stream(EpochSource(session, rows, SCHEMA), replays=True)
        .apply(Count(), key="k", parallelism=2)
        .start(
            None,
            tolerance=tether.Approximate(60),
            backup=str(tmp_path / "backup"),
            checkpoint=str(tmp_path / "checkpoint"),
            arena_dir=str(tmp_path / "arena"),
        )
    )
    query.processAllAvailable()
    found = counted(query), len(query.slots())
    query.stop()
    return found


def rescale(tmp_path, *arguments):
    backup = str(tmp_path / "backup")
    return CliRunner().invoke(app, ["rescale", backup, "--operator", "count", *arguments])


def test_the_query_goes_on_with_the_new_number_and_its_program_need_not_say_it(tmp_path):
    assert lived(tmp_path, by_spark, 2)[1] == 2
    done = rescale(tmp_path, "--slots", "5", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == {
        "operator": "count",
        "before": 2,
        "after": 5,
        "next_epoch": 2,
    }
    assert "has 5 slots already" in rescale(tmp_path, "--slots", "5").output
    counts, slots = lived(tmp_path, by_spark, 4)
    assert slots == 5
    assert counts == {key: 4 * count for key, count in TRUTH.items()}
    assert "5 slots before, 2 now" in rescale(tmp_path, "--slots", "2").output


def test_keys_that_another_hash_has_placed_are_refused(tmp_path):
    lived(tmp_path, home, 2)
    refused = rescale(tmp_path, "--slots", "5")
    assert isinstance(refused.exception, ChangedProgramError)
    assert "not in the slots of their keys" in refused.exception.why
    assert lived(tmp_path, home, 4)[1] == 2


def test_options_that_are_no_json_are_refused(tmp_path):
    refused = rescale(tmp_path, "--slots", "5", "--options", "{")
    assert isinstance(refused.exception, BadValueError)
