"""The commit log of a local store: a torn tail, damage, compaction."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from tether.backup import LocalStore
from tether.core.errors import BackupUnreadableError

from .samples import flip, run_epochs
from .test_stores import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def test_a_torn_tail_is_told_then_cut(store: LocalStore, root: Path) -> None:
    log = root / "commits.log"
    with store.lock("test"):
        run_epochs(store, "Fp")
        whole = log.stat().st_size
        run_epochs(store, "p", first=2)
    os.truncate(log, log.stat().st_size - 3)
    told = store.read_commits()
    assert "not completely written" in told.damaged[0]
    assert (told.history.last_epoch, told.history.gaps) == (1, [])
    assert log.stat().st_size > whole  # reading changes nothing
    with store.lock("test"):
        run_epochs(store, "p", first=2)
    assert store.read_commits().damaged == []
    assert store.read_commits().history.last_epoch == 2


def test_a_damaged_record_is_told_for_ever_and_the_rest_read(store: LocalStore, root: Path) -> None:
    log = root / "commits.log"
    with store.lock("test"):
        run_epochs(store, "F")
        start = log.stat().st_size
        run_epochs(store, "pp", first=1)
    flip(log, start + 30)
    told = store.read_commits()
    assert "checksum" in told.damaged[0]
    assert [c.epoch for c in told.history.chain("count", 0, 9)] == [0, 2]
    small = LocalStore(root, compact_bytes=10)
    with small.lock("test"):
        run_epochs(small, "p", first=3)  # compacts the log
    assert store.read_commits().damaged == told.damaged
    assert store.read_commits().history.lost_since(None) == told.damaged


def test_a_long_log_is_compacted_and_says_the_same(root: Path) -> None:
    store = LocalStore(root, compact_bytes=2000)
    with store.lock("test"):
        run_epochs(store, "Fppp" * 15)
        size = (root / "commits.log").stat().st_size
    plain = LocalStore(root.with_name("plain"))
    with plain.lock("test"):
        run_epochs(plain, "Fppp" * 15)
    assert size < 5000 < (root.with_name("plain") / "commits.log").stat().st_size
    compacted, whole = store.read_commits().history, plain.read_commits().history
    assert compacted.last_epoch == whole.last_epoch == 59
    for before in (58, 59, 60):
        assert [c.epoch for c in compacted.chain("count", 0, before)] == [
            c.epoch for c in whole.chain("count", 0, before)
        ]


def test_a_compaction_that_fails_does_not_fail_the_commit(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = LocalStore(root, compact_bytes=10)

    def refuse(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tether.backup.local_commits.replace_durably", refuse)
    with store.lock("test"):
        run_epochs(store, "Fp")
    assert store.read_commits().history.last_epoch == 1
    assert "could not be compacted" in caplog.text


def test_a_manifest_cut_short_is_unreadable(store: LocalStore, root: Path) -> None:
    with store.lock("test"):
        store.write_manifest(MANIFEST)
    path = root / "manifest.json"
    for damaged in (path.read_bytes()[:40], b"", b"\xff\xfe", b"[1]", b'{"format": 1}'):
        path.write_bytes(damaged)
        with pytest.raises(BackupUnreadableError, match="manifest"):
            store.read_manifest()
