"""The commit log of a local store: two copies, damage to either, damage to both, compaction."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tether.backup import LocalStore
from tether.backup.commitcodec import scan_log
from tether.backup.commitlog import read_copies
from tether.core.errors import BackupError

from .samples import epochs_in, flip, run_epochs
from .test_stores import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

    from tether.backup.commitlog import CommitLog

FILES = ["commits.log", "commits.copy"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


@pytest.fixture
def whole(store: LocalStore) -> LocalStore:
    """Three epochs with a backup each."""
    with store.lock("test"):
        run_epochs(store, "Fpp")
    return store


def starts(path: Path) -> list[int]:
    """Where the entries of a log begin, and where it ends."""
    data, found = path.read_bytes(), [0]
    while found[-1] < len(data):
        begun = found[-1]
        whole = (n for n in range(begun + 37, len(data) + 1) if scan_log(data[begun:n]).clean)
        found.append(next(whole))
    return found


def both(root: Path) -> dict[str, bytes | None]:
    return {name: (root / name).read_bytes() for name in FILES}


def is_all_there(log: CommitLog) -> bool:
    return epochs_in(log) == [0, 1, 2] and not log.lost and not log.history.gaps


def test_a_good_log_is_sound(whole: LocalStore, root: Path) -> None:
    log = whole.read_commits()
    assert log.sound
    assert (log.damaged, log.end.number) == ([], 3)
    assert (root / FILES[0]).read_bytes() == (root / FILES[1]).read_bytes()


# ---- one file is damaged: nothing is lost --------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_of_one_copy_is_told_and_made_good(
    whole: LocalStore, root: Path, name: str
) -> None:
    good = both(root)
    for position in range(len(good[name])):
        data = bytearray(good[name])
        data[position] ^= 0x55
        log = read_copies(good | {name: bytes(data)})
        assert is_all_there(log), position
        assert log.damaged, position


@pytest.mark.parametrize("name", FILES)
def test_a_copy_of_any_length_is_made_good(whole: LocalStore, root: Path, name: str) -> None:
    good = both(root)
    for length in range(len(good[name])):
        log = read_copies(good | {name: good[name][:length]})
        assert is_all_there(log), length
        assert log.damaged
        assert not log.sound


@pytest.mark.parametrize("name", FILES)
def test_a_copy_that_is_gone_or_of_another_time_is_made_good(
    store: LocalStore, root: Path, name: str
) -> None:
    small = LocalStore(root, compact_bytes=600)
    with small.lock("test"):
        run_epochs(small, "F")
        shutil.copy(root / name, root / "older")
        run_epochs(small, "pp", first=1)  # rewrites the log
    (root / name).unlink()
    assert is_all_there(store.read_commits())
    shutil.copy(root / "older", root / name)
    assert is_all_there(store.read_commits())
    (root / name).write_bytes(b"")
    assert is_all_there(store.read_commits())


@pytest.mark.parametrize("name", FILES)
def test_what_was_made_good_is_written_anew(whole: LocalStore, root: Path, name: str) -> None:
    flip(root / name, (root / name).stat().st_size - 5)
    with whole.lock("test"):
        before = (root / name).read_bytes()
        assert whole.read_commits().damaged
        assert (root / name).read_bytes() == before  # reading changes nothing
        whole.begin_commits(2, every_epoch=False)
        assert whole.read_commits().sound
        run_epochs(whole, "p", first=3)
    assert epochs_in(whole.read_commits()) == [0, 1, 2, 3]
    assert whole.read_commits().sound


# ---- a crash during an append --------------------------------------------------------------------


def test_an_append_that_breaks_off_anywhere_is_no_damage(store: LocalStore, root: Path) -> None:
    """The first copy is written before the second, each byte after the one before."""
    with store.lock("test"):
        run_epochs(store, "Fp")
        before = (root / FILES[0]).stat().st_size
        run_epochs(store, "p", first=2)
    good = (root / FILES[0]).read_bytes()
    for first in range(before, len(good) + 1):
        for second in [before] if first < len(good) else range(before, len(good) + 1):
            log = read_copies({FILES[0]: good[:first], FILES[1]: good[:second]})
            assert log.lost == []
            assert epochs_in(log) == ([0, 1, 2] if first == len(good) else [0, 1])


@pytest.mark.parametrize("garbage", [b"\0" * 4096, b"\xff" * 50, b"TETHCM" * 9])
def test_whatever_an_append_left_in_one_copy_does_not_count(
    whole: LocalStore, root: Path, garbage: bytes
) -> None:
    """After a power cut a file may hold anything where it was not synced."""
    with (root / FILES[0]).open("ab") as file:
        file.write(garbage)
    assert is_all_there(whole.read_commits())
    with whole.lock("test"):
        run_epochs(whole, "p", first=3)
    assert epochs_in(whole.read_commits()) == [0, 1, 2, 3]


def test_a_tail_that_is_torn_in_the_only_copy_is_cut(whole: LocalStore, root: Path) -> None:
    (root / FILES[1]).unlink()
    os.truncate(root / FILES[0], (root / FILES[0]).stat().st_size - 3)
    log = whole.read_commits()
    assert (epochs_in(log), log.lost) == ([0, 1], [])


# ---- both files are damaged: it is never silent --------------------------------------------------


def test_a_flipped_bit_in_the_newest_record_of_both_is_never_taken_for_a_torn_tail(
    whole: LocalStore, root: Path
) -> None:
    """Its length above all: all behind it would be cut, and the bound would stay as it was."""
    good = (root / FILES[0]).read_bytes()
    begin = starts(root / FILES[0])[-2]
    for position in range(begin, len(good)):
        for bit in (0, 3, 7):
            data = bytearray(good)
            data[position] ^= 1 << bit
            log = read_copies(dict.fromkeys(FILES, bytes(data)))
            assert log.lost, position
            assert log.history.lost_since(log.history.chain("count", 0, 9)[0]) == log.lost


def test_records_that_are_lost_in_both_are_told_for_ever(whole: LocalStore, root: Path) -> None:
    at = starts(root / FILES[0])
    for name in FILES:
        flip(root / name, at[2] + 50)
    told = whole.read_commits()
    assert "Record 2 is missing" in told.lost[0]
    assert "checksum" in told.lost[0]
    assert epochs_in(told) == [0, 2]
    with whole.lock("test"):
        whole.begin_commits(2, every_epoch=False)
        run_epochs(whole, "p", first=3)
    later = whole.read_commits()
    assert (later.damaged, later.lost) == ([], [])
    assert later.history.gaps == told.lost
    assert later.history.lost_since(None) == told.lost


def test_damage_in_different_places_of_both_is_made_good(whole: LocalStore, root: Path) -> None:
    at = starts(root / FILES[0])
    flip(root / FILES[0], at[2] + 50)
    flip(root / FILES[1], at[1] + 50)
    assert is_all_there(whole.read_commits())


def test_a_snapshot_that_is_lost_in_both_is_told(whole: LocalStore, root: Path) -> None:
    for name in FILES:
        flip(root / name, 40)
    log = whole.read_commits()
    assert "beginning of the log is missing" in log.lost[0]
    assert log.history.lost_since(None) == log.lost


def test_a_copy_of_another_log_is_never_mixed_in(whole: LocalStore, root: Path) -> None:
    other = LocalStore(root.with_name("other"))
    with other.lock("test"):
        run_epochs(other, "FpppF")
    shutil.copy(root.with_name("other") / FILES[1], root / FILES[1])
    log = whole.read_commits()
    assert any("different contents" in note for note in log.lost)


def test_an_accepted_gap_is_never_forgotten(whole: LocalStore) -> None:
    with whole.lock("test"):
        whole.begin_commits(2, every_epoch=True, gap="the rest was lost")
        run_epochs(whole, "p", first=3)
    log = whole.read_commits()
    assert log.history.gaps == ["the rest was lost"]
    assert log.history.every_epoch_from == 3
    assert log.lost == []


# ---- compaction ----------------------------------------------------------------------------------


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
    assert store.read_commits().end.number == plain.read_commits().end.number == 60
    for before in (58, 59, 60):
        assert [c.epoch for c in compacted.chain("count", 0, before)] == [
            c.epoch for c in whole.chain("count", 0, before)
        ]


def test_a_crash_between_the_two_copies_of_a_compaction_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tether.backup import local_commits

    really = local_commits.replace_durably

    def only_the_first(path: Path, data: bytes) -> None:
        if path.name == FILES[1] and path.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        really(path, data)

    store = LocalStore(root, compact_bytes=300)
    monkeypatch.setattr(local_commits, "replace_durably", only_the_first)
    with store.lock("test"):
        run_epochs(store, "Fpp")
    assert (root / FILES[0]).read_bytes() != (root / FILES[1]).read_bytes()
    for name in FILES:  # each of the two is enough
        hidden = (root / name).read_bytes()
        (root / name).unlink()
        assert is_all_there(store.read_commits())
        (root / name).write_bytes(hidden)


def test_a_compaction_that_fails_does_not_fail_the_commit(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = LocalStore(root, compact_bytes=10)
    with store.lock("test"):
        store.begin_commits(-1, every_epoch=False)

        def refuse(path: Path, data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("tether.backup.local_commits.replace_durably", refuse)
        run_epochs(store, "Fp")
    assert store.read_commits().history.last_epoch == 1
    assert "could not be rewritten" in caplog.text


def test_a_record_counts_only_when_both_copies_have_it(
    whole: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tether.backup import local_commits

    really, calls = local_commits.append_durably, []

    def only_the_first(descriptor: int, buffers: list[bytes]) -> int:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really(descriptor, buffers)

    monkeypatch.setattr(local_commits, "append_durably", only_the_first)
    with whole.lock("test"):
        with pytest.raises(BackupError, match="could not be written"):
            run_epochs(whole, "p", first=3)
        run_epochs(whole, "p", first=3)  # run again: what the first run left is void
    log = whole.read_commits()
    assert (log.sound, log.history.last_epoch) == (True, 3)
    assert len(log.history.chain("count", 0, 9)) == 4


def test_a_manifest_cut_short_is_unreadable(store: LocalStore, root: Path) -> None:
    from tether.core.errors import BackupUnreadableError

    with store.lock("test"):
        store.write_manifest(MANIFEST)
    path = root / "manifest.json"
    for damaged in (path.read_bytes()[:40], b"", b"\xff\xfe", b"[1]", b'{"format": 3}'):
        path.write_bytes(damaged)
        with pytest.raises(BackupUnreadableError, match="manifest"):
            store.read_manifest()
