"""What only a local directory has: logs, permissions, full disks, a torn tail."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tether.backup import LocalStore, open_store
from tether.backup import files as files_module
from tether.core.errors import BackupError, BackupUnreadableError

from .samples import flip, header, parts, record, run_epochs, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def logs(root: Path) -> list[Path]:
    return sorted(root.glob("slots/*/*/*.log"))


# --- logs ----------------


def test_a_full_frame_starts_a_log_and_partial_ones_of_its_lineage_follow(
    store: LocalStore, root: Path
) -> None:
    first = store.append(header(kind="full", sequence=0), parts())
    # Another worker process of the same node goes on with the same resident state.
    follow = LocalStore(root).append(header(kind="partial", sequence=1), parts())
    assert follow.name == first.name
    assert follow.offset == first.length
    second = store.append(header(kind="full", sequence=2), parts())
    assert second.name != first.name
    assert store.append(header(kind="partial", sequence=3), parts()).name == second.name
    stranger = store.append(header(kind="partial", sequence=4, lineage="other"), parts())
    assert stranger.name not in (first.name, second.name)
    assert len(logs(root)) == 3


def test_lineages_that_end_alike_are_not_mixed_up(store: LocalStore) -> None:
    first = store.append(header(kind="full", lineage="a-b"), parts())
    assert store.append(header(kind="partial", lineage="b"), parts()).name != first.name
    dotted = store.append(header(kind="full", lineage="x.b"), parts())
    assert store.append(header(kind="partial", lineage="b"), parts()).name != dotted.name


def test_nothing_is_appended_behind_a_torn_frame(store: LocalStore, root: Path) -> None:
    ref = store.append(header(kind="full"), parts())
    torn = store.append(header(kind="partial", sequence=1), parts())
    os.truncate(root / ref.name, torn.offset + torn.length // 2)  # killed in mid-write
    later = store.append(header(kind="partial", sequence=2), parts(2))
    assert later.name != ref.name
    found = dict(store.frames())
    assert isinstance(found.pop(ref), type(header()))
    assert isinstance(found.pop(later), type(header()))
    (error,) = found.values()
    assert isinstance(error, BackupUnreadableError)
    assert "torn" in error.why
    with pytest.raises(BackupUnreadableError, match="torn"):
        store.read(torn)


def test_a_busy_log_is_left_alone(store: LocalStore, root: Path) -> None:
    """A task that was given up for dead may still be writing to it."""
    ref = store.append(header(kind="full"), parts())
    with files_module.opened(root / ref.name, os.O_RDWR) as descriptor:
        assert files_module.try_lock(descriptor)
        other = store.append(header(kind="partial", sequence=1), parts())
        assert other.name != ref.name
        with store.lock("test"):
            store.drop([ref])
        assert value_of(store.read(ref).parts) == 0  # not deleted while it is in use


def test_a_log_that_was_dropped_after_it_was_found_is_not_written_to(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = store.append(header(kind="full"), parts())

    def dropped_first(descriptor: int) -> bool:
        (root / ref.name).unlink()
        return files_module.try_lock(descriptor)

    monkeypatch.setattr("tether.backup.local.try_lock", dropped_first)
    later = store.append(header(kind="partial", sequence=1), parts(4))
    assert value_of(store.read(later).parts) == 4


def test_one_damaged_frame_hides_no_other(store: LocalStore, root: Path) -> None:
    refs = [store.append(header(kind="full"), parts(0))]
    refs += [store.append(header(kind="partial", sequence=n), parts(n)) for n in (1, 2)]
    flip(root / refs[1].name, refs[1].offset + 40)  # in the head of the second
    found = list(store.frames())
    assert [ref for ref, _ in found] == refs
    assert [isinstance(head, BackupUnreadableError) for _, head in found] == [False, True, False]
    with pytest.raises(BackupUnreadableError):
        store.read(refs[1])
    assert value_of(store.read(refs[2]).parts) == 2


def test_every_damaged_byte_of_a_stored_frame_is_noticed(store: LocalStore, root: Path) -> None:
    ref = store.append(header(kind="full"), parts())
    good = (root / ref.name).read_bytes()
    for position in range(0, ref.length, 37):
        flip(root / ref.name, position)
        with pytest.raises(BackupUnreadableError):
            store.read(ref)
        (root / ref.name).write_bytes(good)
    assert value_of(store.read(ref).parts) == 0


def test_a_log_stays_until_all_of_its_frames_are_dropped(store: LocalStore, root: Path) -> None:
    refs = [store.append(header(kind="full"), parts())]
    refs += [store.append(header(kind="partial", sequence=n), parts()) for n in (1, 2)]
    with store.lock("test"):
        store.drop([refs[1]])
        store.drop(iter([refs[0]]))
        assert value_of(store.read(refs[2]).parts) == 0
        assert len(logs(root)) == 1
        store.drop([refs[2]])
    assert logs(root) == []


def test_files_and_folders_are_for_their_owner_only(store: LocalStore, root: Path) -> None:
    old = os.umask(0)
    try:
        with store.lock("test"):
            run_epochs(store, "Fp")
    finally:
        os.umask(old)
    for path in [root, *root.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


# --- places that cannot hold backups ----------------


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


# --- full disks ----------------


@pytest.fixture
def small_files() -> Callable[[int], None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_frame_that_does_not_fit_leaves_nothing_behind(
    store: LocalStore, root: Path, small_files: Callable[[int], None]
) -> None:
    ref = store.append(header(kind="full"), parts())
    small_files(ref.length + 1000)
    with pytest.raises(BackupError, match="Free space"):
        store.append(header(kind="partial", sequence=1), parts(rows=10_000))
    assert (root / ref.name).stat().st_size == ref.length  # cut back
    with pytest.raises(BackupError, match="Free space"):
        store.append(header(kind="full", sequence=2), parts(rows=10_000))
    assert len(logs(root)) == 1  # a half-written new log is removed
    assert value_of(store.read(ref).parts) == 0


def test_a_commit_that_does_not_fit_is_taken_back(
    store: LocalStore, root: Path, small_files: Callable[[int], None]
) -> None:
    with store.lock("test"):
        run_epochs(store, "Fp")
        log = root / "commits.log"
        before = log.read_bytes()
        small_files(len(before) + 20)
        with pytest.raises(BackupError, match="Free space"):
            run_epochs(store, "p", first=2)
        assert log.read_bytes() == before
        small_files(2**30)
        run_epochs(store, "p", first=2)
    assert store.read_commits().damaged == []
    assert store.read_commits().history.last_epoch == 2


def test_a_manifest_that_does_not_fit_leaves_the_old_one(
    store: LocalStore, small_files: Callable[[int], None]
) -> None:
    from .test_stores import MANIFEST

    with store.lock("test"):
        store.write_manifest(MANIFEST)
        small_files(10)
        with pytest.raises(BackupError, match="Free space"):
            store.write_manifest(MANIFEST)
        small_files(2**30)
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
        assert "not completely written" in store.read_commits().damaged[0]
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


# --- the commit log ----------------


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
    from .test_stores import MANIFEST

    with store.lock("test"):
        store.write_manifest(MANIFEST)
    path = root / "manifest.json"
    for damaged in (path.read_bytes()[:40], b"", b"\xff\xfe", b"[1]", b'{"format": 1}'):
        path.write_bytes(damaged)
        with pytest.raises(BackupUnreadableError, match="manifest"):
            store.read_manifest()
