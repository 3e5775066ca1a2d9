"""The demo's job ends when all files are read, in however many epochs; and fails when its query has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tether.cli import demo_job


class Query:
    """Has done 23 epochs of 24 files: two of them were read in one."""

    def __init__(self, failure: Exception | None = None):
        self._failure = failure

    def slots(self):
        return [{"epoch": 22, "divergence": 1.0, "theta": 2.0}]

    def bound(self):
        return SimpleNamespace(spent=0.0, worst_now=2.0, promised=4.0)

    def totals(self):
        return {"rows": 10, "backups": 0, "backup_bytes": 0}

    def story(self):
        return []

    def processAllAvailable(self):  # noqa: N802 - Spark's name
        if self._failure is not None:
            raise self._failure


def test_it_ends_when_all_is_read(capsys):
    demo_job.follow(Query())
    assert '"epochs":23' in capsys.readouterr().out.replace(" ", "")


def test_it_fails_with_its_query():
    with pytest.raises(ZeroDivisionError):
        demo_job.follow(Query(ZeroDivisionError()))
