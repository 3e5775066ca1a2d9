"""Queries that must not start, and operators of users that fail: what is said of them."""

from __future__ import annotations

import math
import shutil

import pyarrow as pa
import pytest

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.core.errors import (
    BackupError,
    BackupLockedError,
    BadValueError,
    ChangedProgramError,
    OperatorError,
    OutputSchemaError,
    QueryRefusedError,
)
from tether.testing.epochs import read_epochs, write_epochs

from .counting import SCHEMA, CountingQuery, skewed_keys


def test_a_backup_that_lacks_epochs_is_refused(spark, tmp_path):
    """The query went on without backups for a while: what the old one holds is not what was."""
    counting = CountingQuery(spark, tmp_path, skewed_keys(epochs=1, rows=200, keys=9, seed=1))
    counting.run(tether.Approximate(1000))
    for epoch, policy in ((1, tether.NoTolerance()), (2, tether.Approximate(1000))):
        write_epochs(tmp_path / "in", [pa.table({"k": [1, 2, 3]})], first=epoch)
        query = counting.start(policy)
        if policy.keeps_backups:
            with pytest.raises(
                QueryRefusedError, match="Epochs from 1 on were run without backups"
            ):
                query.awaitTermination()
        else:
            query.awaitTermination()
            assert query.bound().spent == math.inf  # its state was gone, and it began from nothing


# ---- refusals ----


def test_two_queries_on_one_backup_are_refused(counting):
    query = counting.start(tether.Approximate(10), trigger={"processingTime": "0 seconds"})
    try:
        with pytest.raises(BackupLockedError):
            counting.start(tether.Approximate(10))
    finally:
        query.stop()


def test_another_program_is_refused_and_says_what_changed(counting):
    counting.run(tether.Approximate(10))
    with pytest.raises(ChangedProgramError, match=r"slots.*2 → 3"):
        counting.run(tether.Approximate(10), slots=3)


def test_another_bound_is_refused_unless_allowed(counting):
    counting.run(tether.Approximate(10))
    more = skewed_keys(epochs=1, rows=50, keys=300, seed=1)
    write_epochs(counting.work / "in", more, first=counting.epochs)
    with pytest.raises(ChangedProgramError, match="policy"):
        counting.run(tether.Approximate(20))
    counting.run(tether.Approximate(20), allow_changed=["policy"])


def test_a_checkpoint_without_its_backup_is_refused(counting):
    counting.run(tether.Approximate(10))
    write_epochs(counting.work / "in", [pa.table({"k": [1]})], first=counting.epochs)
    shutil.rmtree(counting.work / "backup")
    with pytest.raises(QueryRefusedError, match="empty"):
        counting.run(tether.Approximate(10))


def test_a_backup_of_another_query_is_refused(counting):
    counting.run(tether.Approximate(10))
    shutil.rmtree(counting.work / "checkpoint")
    with pytest.raises(QueryRefusedError, match="another query"):
        counting.run(tether.Approximate(10))


def test_a_backup_that_cannot_be_written_is_refused_at_start(counting):
    (counting.work / "backup").write_text("in the way")
    with pytest.raises(BackupError):
        counting.start(tether.Approximate(10))


def test_a_policy_with_backups_needs_a_place_for_them(counting, spark):
    applied = tether.stream(read_epochs(spark, counting.work / "in", SCHEMA)).apply(
        KeyedAggregate(), key="k"
    )
    with pytest.raises(QueryRefusedError, match="backup"):
        applied.start(tolerance=tether.Approximate(10))


def test_speculation_is_refused():
    from tether.spark.session import check_session

    class Speculating:
        _jsparkSession = None  # noqa: N815

        class conf:  # noqa: N801
            @staticmethod
            def get(name, default=None):
                return "true" if name == "spark.speculation" else default

    with pytest.raises(QueryRefusedError, match="speculation"):
        check_session(Speculating())


def test_a_key_that_is_not_there_is_refused(spark, counting):
    applied = tether.stream(read_epochs(spark, counting.work / "in", SCHEMA)).apply(
        KeyedAggregate(), key="nothing"
    )
    with pytest.raises(BadValueError, match="nothing"):
        applied.start()


# ---- the user's own operator ----


def test_an_operator_that_raises_is_named_with_slot_and_epoch(spark, tmp_path):
    class Raises(tether.Operator):
        output = "k long"

        def __init__(self, poison):
            self.poison = poison

        def setup(self, state):
            self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

        def process(self, batch, out):
            self.seen.add(batch.select(["k"]), n=1)
            if self.poison in batch["k"].to_pylist():
                raise ZeroDivisionError("a bad row")

    write_epochs(tmp_path / "in", [pa.table({"k": [1, 2]}), pa.table({"k": [3, 666]})])
    query = (
        tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
        .apply(Raises(666), key="k", parallelism=2)
        .start(trigger={"availableNow": True})
    )
    with pytest.raises(OperatorError, match=r"'raises', slot \d, epoch 1 raised ZeroDivisionError"):
        query.awaitTermination()
    assert isinstance(query.exception(), OperatorError)


def test_output_that_does_not_match_its_schema_is_named(spark, tmp_path):
    class WrongOutput(tether.Operator):
        output = "k long, n long"

        def process(self, batch, out):
            out.emit(batch.select(["k"]))

    write_epochs(tmp_path / "in", [pa.table({"k": [1]})])
    query = (
        tether.stream(read_epochs(spark, tmp_path / "in", SCHEMA))
        .apply(WrongOutput(), key="k", parallelism=1)
        .start(trigger={"availableNow": True})
    )
    with pytest.raises(OutputSchemaError, match=r"missing: \['n'\]"):
        query.awaitTermination()
