"""What an earlier version left is continued with, or refused with a clear word.

``earlier/`` holds directories as earlier versions left them, and how they were made (``make.py``):
``approximate``, ``barrier`` and ``mini-batch`` as of commit 68b5ea8, where the engine was part of the
Spark host; ``format-1`` as of 85c518d, which did not yet write down what a loss had cost.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tether.core.errors import BackupUnreadableError
from tether.testing.epochs import write_epochs

from .counting import l1_error, true_counts
from .earlier import make

if TYPE_CHECKING:
    from pathlib import Path

LONG = pytest.mark.long


def left_by(name: str, root: Path) -> Path:
    """Directories as an earlier version left them, with two more epochs to read."""
    shutil.copytree(make.HERE / name, root, dirs_exist_ok=True)
    for file in (root / "checkpoint").rglob("*"):
        if file.is_file():
            file.write_text(file.read_text().replace("@ROOT@", str(root)))
    write_epochs(root / "in", make.rows())
    return root


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    ["approximate", "barrier", pytest.param("mini-batch", marks=LONG)],
)
def test_a_query_of_the_version_before_is_continued(spark, tmp_path, name):
    found = {}

    def look(rows, _epoch):
        found.update({row["k"]: row["count"] for row in rows.collect()})

    query = make.query(spark, left_by(name, tmp_path), name, look)
    try:
        query.processAllAvailable()
        assert [one.epoch for one in query.story() if one.what == "recovery"]
        counts = {row["k"]: row["count"] for row in query.table("totals").collect()}
        bound = query.bound()
    finally:
        query.stop()
    assert found.keys() <= counts.keys()
    wrong = l1_error(counts, true_counts(make.rows()))
    if name == "approximate":  # it left with a loss in its account, which is still there
        assert wrong <= bound.spent <= bound.promised
        assert bound.spent > 0
    else:
        assert wrong == bound.spent == 0


def test_a_layout_that_says_too_little_is_refused(tmp_path):
    from tether.backup.local import LocalStore

    root = left_by("format-1", tmp_path)
    with pytest.raises(BackupUnreadableError, match="has format 1") as refused:
        LocalStore(root / "backup").read_manifest()
    assert "does not say what each loss cost" in str(refused.value)
    assert "start with an empty backup directory" in str(refused.value)
