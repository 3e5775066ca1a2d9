"""Another number of slots in the backup of a stopped query, without its program."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from tests.testing.test_rescaling import Count, Life, counted

import tether
from tether.backup.local import LocalStore
from tether.core.errors import (
    BackupError,
    BackupLockedError,
    BadValueError,
    ChangedProgramError,
    QueryRefusedError,
)
from tether.spark.running.offline import rescale_store
from tether.testing.fuzz.meaning import home

ROWS = [[(7 * n + epoch) % 23 for n in range(40)] for epoch in range(12)]


class Homes:
    """As the stand-in for Spark has them."""

    def __init__(self, types):
        self._types = types

    def slots_of(self, operator, keys, slots):
        names = list(self._types[operator])
        return np.array([home(row, names, slots) for row in keys.to_pylist()], np.int64)


def rescale(tmp_path, slots, operator="count"):
    return rescale_store(LocalStore(tmp_path / "backup"), operator, slots, Homes)


def stopped(tmp_path, **options):
    life = Life(tmp_path, ROWS)
    query = life.start(2, allow_changed=[], **options)
    life.go_on(query, 3)
    query.stop()
    return life


@pytest.mark.parametrize(
    "policy",
    [tether.Approximate(60), tether.MiniBatch(), tether.Barrier(2)],
    ids=lambda one: one.name,
)
def test_the_program_need_neither_be_there_nor_change(tmp_path, policy):
    life = stopped(tmp_path, tolerance=policy)
    assert rescale(tmp_path, 5) == ("count", 2, 5, 3)
    assert rescale(tmp_path, 3) == ("count", 5, 3, 3)
    assert rescale(tmp_path, 3) == ("count", 3, 3, 3)
    for _ in range(2):
        query = life.start(2, allow_changed=[], tolerance=policy)
        life.go_on(query, 2)
        assert (counted(query), len(query.slots())) == (life.truth(), 3)
        assert query.bound().spent == 0
        query.stop()
    rescale(tmp_path, 2)
    query = life.start(2, allow_changed=[], tolerance=policy)
    life.go_on(query, 1)
    assert (counted(query), len(query.slots())) == (life.truth(), 2)
    query.stop()


def test_what_cannot_be_done_is_refused_and_nothing_is_changed(tmp_path):
    with pytest.raises(BackupError, match="no backup"):
        rescale(tmp_path, 3)
    life = stopped(tmp_path, operator=Count(total=True))
    with pytest.raises(ChangedProgramError, match="'total' is a number"):
        rescale(tmp_path, 3)
    with pytest.raises(BadValueError, match="no operator 'sum'"):
        rescale(tmp_path, 3, operator="sum")
    with pytest.raises(BadValueError, match="no number of slots"):
        rescale(tmp_path, 0)
    query = life.start(2, allow_changed=[], operator=Count(total=True))
    life.go_on(query, 1)
    assert counted(query) == life.truth()
    with pytest.raises(BackupLockedError):
        rescale(tmp_path, 3)
    query.stop()


def test_rows_that_are_logged_need_the_program(tmp_path):
    stopped(tmp_path, tolerance=tether.UpstreamBackup())
    with pytest.raises(ChangedProgramError, match="logged under terms"):
        rescale(tmp_path, 3)


def test_a_backup_of_an_earlier_version_says_what_to_do(tmp_path):
    stopped(tmp_path)
    store = LocalStore(tmp_path / "backup")
    older = msgspec.structs.replace(store.read_manifest(), operators={})
    lock = store.lock("test")
    store.write_manifest(older)
    lock.release()
    with pytest.raises(QueryRefusedError, match="earlier version"):
        rescale(tmp_path, 3)


def test_a_query_that_was_not_stopped_in_good_order_is_refused(tmp_path):
    life = Life(tmp_path, ROWS)
    query = life.start(2, allow_changed=[])
    life.go_on(query, 3)
    query._driver.outcome.failed(RuntimeError("nothing is flushed after an error"))
    query.stop()
    with pytest.raises(ChangedProgramError, match="not stopped in good order"):
        rescale(tmp_path, 3)
