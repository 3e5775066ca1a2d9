"""A commit log that has lost its newest records, on Spark; backup/test_damage.py tries the rest."""

from __future__ import annotations

import math

import pytest

import tether
from tether.backup.commitcodec import scan_log
from tether.core.errors import BackupUnreadableError
from tether.testing.epochs import write_epochs

from .counting import CountingQuery, skewed_keys

pytestmark = pytest.mark.spark


@pytest.fixture
def counting(spark, tmp_path):
    return CountingQuery(spark, tmp_path, skewed_keys(epochs=6, rows=400, keys=40, seed=5))


def cut_log(counting) -> None:
    """Take the newest third of the records away, in both copies: what is left is a good, older log."""
    for name in ("commits.log", "commits.copy"):
        path = counting.work / "backup" / name
        data = path.read_bytes()
        wanted = scan_log(data).entries
        wanted = wanted[: 2 * len(wanted) // 3]
        lengths = [n for n in range(len(data)) if scan_log(data[:n]).entries == wanted]
        path.write_bytes(data[: lengths[0]])
        assert scan_log(path.read_bytes()).clean


def one_more_epoch(counting) -> None:
    more = skewed_keys(epochs=1, rows=400, keys=40, seed=6)
    counting.epochs += write_epochs(counting.work / "in", more, first=counting.epochs)
    counting.truth.update(more[0]["k"].to_pylist())


def test_it_is_refused_or_its_bound_says_that_nobody_knows(counting):
    policy = tether.Approximate(100)
    counting.run(policy)
    cut_log(counting)
    one_more_epoch(counting)
    with pytest.raises(
        BackupUnreadableError, match=r"There were \d+ commit records.*accept_damage"
    ):
        counting.run(policy)
    accepted = counting.run(policy, accept_damage=True)
    assert counting.error() > 100  # what it would have told
    assert accepted.bound().spent == accepted.bound().extra == math.inf
    (told,) = [event for event in accepted.story() if event.what == "damage"]
    assert "commit records" in told.cause
    one_more_epoch(counting)
    again = counting.run(policy)  # accepted once, and never forgotten
    assert again.bound().spent == math.inf
