"""Places that cannot hold backups, and disks that fill up: a clear error, and nothing lost."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tether.backup import LocalStore, open_store
from tether.backup import files as files_module
from tether.core.errors import BackupError, BackupUnreadableError

from .samples import header, parts, record, run_epochs, value_of
from .test_stores import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def test_a_path_that_is_a_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(BackupError, match="is a file"):
        open_store(str(tmp_path / "file"))
    with pytest.raises(BackupError, match="file is in its place"):
        open_store(str(tmp_path / "file" / "below")).lock("test")
    assert (tmp_path / "file").read_text() == "hello"


@pytest.fixture
def without_rights() -> Callable[[], None]:
    """Stop being root, for which no directory is unwritable."""

    def drop_rights() -> None:
        if os.getuid() == 0:
            os.seteuid(65534)

    yield drop_rights
    if os.getuid() == 0:
        os.seteuid(0)


def test_an_unwritable_directory_is_named(without_rights: Callable[[], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        root.mkdir()
        Path(folder).chmod(0o755)
        root.chmod(0o555)
        store = LocalStore(root)
        without_rights()
        with pytest.raises(BackupError, match="right to write") as caught:
            store.lock("test")
        assert str(root) in str(caught.value)
        with pytest.raises(BackupError, match="right to write"):
            store.append(header(), parts())
        os.seteuid(os.getuid())
        root.chmod(0o755)


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """A full disk, for this process; only as long as it must be, for pytest's log is a file too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_frame_that_does_not_fit_leaves_nothing_behind(store: LocalStore, root: Path) -> None:
    ref = store.append(header(kind="full"), parts())
    with no_file_above(ref.length + 1000), pytest.raises(BackupError, match="Free space"):
        store.append(header(kind="partial", sequence=1), parts(rows=10_000))
    assert (root / ref.name).stat().st_size == ref.length  # cut back
    with no_file_above(ref.length + 1000), pytest.raises(BackupError, match="Free space"):
        store.append(header(kind="full", sequence=2), parts(rows=10_000))
    assert len(list(root.glob("slots/*/*/*.log"))) == 1  # a half-written new log is removed
    assert value_of(store.read(ref).parts) == 0


def test_a_commit_that_does_not_fit_is_taken_back(store: LocalStore, root: Path) -> None:
    with store.lock("test"):
        run_epochs(store, "Fp")
        log = root / "commits.log"
        before = log.read_bytes()
        with no_file_above(len(before) + 20), pytest.raises(BackupError, match="Free space"):
            run_epochs(store, "p", first=2)
        assert log.read_bytes() == before
        run_epochs(store, "p", first=2)
    assert store.read_commits().damaged == []
    assert store.read_commits().history.last_epoch == 2


def test_a_manifest_that_does_not_fit_leaves_the_old_one(
    store: LocalStore,
) -> None:
    with store.lock("test"):
        store.write_manifest(MANIFEST)
        with no_file_above(10), pytest.raises(BackupError, match="Free space"):
            store.write_manifest(MANIFEST)
        assert store.read_manifest() == MANIFEST
        store.write_manifest(MANIFEST)  # what the failed try left does not stand in the way


def test_what_cannot_be_cut_back_is_cut_when_the_log_is_opened_again(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.lock("test"):
        run_epochs(store, "F")

        def half(descriptor: int, buffers: Sequence[bytes]) -> int:
            os.write(descriptor, bytes(buffers[0])[:20])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(files_module, "write_all", half)
            patch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError("no")))
            with pytest.raises(BackupError, match="Free space"):
                store.append_commit(record(1))
        assert "too short for an entry" in store.read_commits().damaged[0]
        store.append_commit(record(1))
    log = store.read_commits()
    assert (log.damaged, log.history.last_epoch) == ([], 1)


def test_short_writes_are_continued(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.writev

    def short(descriptor: int, views: Sequence[memoryview]) -> int:
        return really(descriptor, [views[0][:7]])

    monkeypatch.setattr(os, "writev", short)
    ref = store.append(header(), parts(3))
    assert value_of(store.read(ref).parts) == 3


def test_a_failing_disk_is_not_mistaken_for_a_missing_frame(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files, say, must not make recovery widen the bound for good."""
    ref = store.append(header(), parts())

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(BackupError) as caught:
        store.read(ref)
    assert not isinstance(caught.value, BackupUnreadableError)
