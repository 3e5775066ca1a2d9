"""What only object stores have: numbered commit objects, folding, stores of many manners."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tether.backup import ObjectStore, StoreAddress
from tether.backup.objectio import ObjectFolder
from tether.core.errors import BackupError, BackupUnreadableError

from .samples import header, parts, record, run_epochs, value_of

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def folder(object_address: StoreAddress) -> ObjectFolder:
    return ObjectFolder(object_address.url, object_address.storage_options)


@pytest.fixture
def store(object_address: StoreAddress) -> ObjectStore:
    return ObjectStore(object_address.url, object_address.storage_options, fold_every=5)


def test_commits_are_folded_and_say_the_same(store: ObjectStore, folder: ObjectFolder) -> None:
    with store.lock("test"):
        refs = run_epochs(store, "FppFppp")
    assert list(folder.sizes("commits")) == [
        "commits/000000000005.snapshot",
        "commits/000000000006.commit",
        "commits/000000000007.commit",
    ]
    with store.lock("test"):  # a new driver goes on with the numbers
        refs += run_epochs(store, "pppppFp", first=7)
    assert len(folder.sizes("commits")) <= 6
    log = store.read_commits()
    assert log.damaged == []
    assert [c.frame for c in log.history.chain("count", 0, 99)] == refs[-2:]
    assert [c.frame for c in log.history.previous_generation("count", 0, 99)] == refs[3:-2]


def test_a_lost_commit_object_is_noticed_by_its_number(
    store: ObjectStore, folder: ObjectFolder
) -> None:
    with store.lock("test"):
        run_epochs(store, "Fppp")
    folder.delete(["commits/000000000002.commit", "commits/000000000003.commit"])
    log = store.read_commits()
    assert log.damaged == log.lost == ["Records 2 to 3 are missing."]
    assert log.history.lost_since(log.history.chain("count", 0, 9)[0]) == log.damaged
    assert [c.epoch for c in log.history.chain("count", 0, 9)] == [0, 3]


def test_a_damaged_commit_object_is_told(store: ObjectStore, folder: ObjectFolder) -> None:
    with store.lock("test"):
        run_epochs(store, "Fpp")
    folder.replace("commits/000000000002.commit", b"rubbish")
    folder.replace("commits/notes.txt", b"not ours")
    log = store.read_commits()
    assert log.damaged[0].startswith("commits/000000000002.commit cannot be read")
    assert "Record 2 is missing." in log.lost[0]
    assert log.history.last_epoch == 2


def test_a_damaged_newest_commit_object_is_told(store: ObjectStore, folder: ObjectFolder) -> None:
    with store.lock("test"):
        run_epochs(store, "Fpp")
        folder.replace("commits/000000000003.commit", b"rubbish")
        log = store.read_commits()
        assert "000000000003.commit cannot be read" in log.lost[0]
        assert log.history.lost_since(log.history.chain("count", 0, 9)[0]) == log.lost
        again = ObjectStore(folder.url, store._options)
        again._lock = store._lock
        run_epochs(again, "p", first=3)  # its number stays taken
    assert store.read_commits().history.gaps == log.lost
    assert store.read_commits().lost == []
    assert store.read_commits().history.last_epoch == 3


def test_swapped_commit_objects_are_told(store: ObjectStore, folder: ObjectFolder) -> None:
    with store.lock("test"):
        run_epochs(store, "Fpp")
    one, two = "commits/000000000001.commit", "commits/000000000002.commit"
    first, second = folder.read(one), folder.read(two)
    folder.replace(one, second)
    folder.replace(two, first)
    log = store.read_commits()
    assert f"{one} holds entry 2." in log.damaged
    assert log.lost


def test_a_damaged_snapshot_leaves_a_gap(store: ObjectStore, folder: ObjectFolder) -> None:
    with store.lock("test"):
        run_epochs(store, "FppppFp")
    folder.replace("commits/000000000005.snapshot", b"rubbish")
    log = store.read_commits()
    assert any("snapshot cannot be read" in note for note in log.damaged)
    newest = log.history.chain("count", 0, 9)
    assert [c.epoch for c in newest] == [5, 6]
    assert log.history.lost_since(newest[0]) == []  # it stands on what came after
    assert log.history.lost_since(None) == log.lost


def test_an_interrupted_folding_changes_nothing(
    store: ObjectStore, folder: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, store.lock("test"):
        patch.setattr(ObjectFolder, "delete", lambda *_: (_ for _ in ()).throw(BackupError("no")))
        run_epochs(store, "Fpppp")  # the snapshot is there, and all that it replaces
    assert len(folder.sizes("commits")) == 7
    log = store.read_commits()
    assert log.damaged == []
    assert [c.epoch for c in log.history.chain("count", 0, 9)] == [0, 1, 2, 3, 4]
    folder.delete(["lock.json"])
    with store.lock("test"):
        run_epochs(store, "p", first=5)  # folds again, and tidies up
    assert list(folder.sizes("commits")) == ["commits/000000000006.snapshot"]


def test_a_reader_that_meets_a_folding_looks_again(
    store: ObjectStore, folder: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.lock("test"):
        run_epochs(store, "Fppp")
        really = ObjectFolder.read_many
        calls = []

        def read_many(self: ObjectFolder, names: list[str]) -> dict[str, bytes | None]:
            if not calls:
                calls.append(names)
                run_epochs(store, "p", first=4)  # the driver folds before we read
            return really(self, names)

        monkeypatch.setattr(ObjectFolder, "read_many", read_many)
        log = ObjectStore(folder.url, store._options).read_commits()
    assert log.damaged == []
    assert log.history.last_epoch == 4


def test_a_damaged_frame_object_is_told_and_unreadable(
    store: ObjectStore, folder: ObjectFolder
) -> None:
    refs = [store.append(header(epoch=n), parts(n)) for n in range(3)]
    folder.replace(refs[0].name, folder.read(refs[0].name)[:-5])
    folder.replace(refs[1].name, b"")
    for ref in refs[:2]:
        with pytest.raises(BackupUnreadableError):
            store.read(ref)
    kinds = [isinstance(head, BackupUnreadableError) for _, head in store.frames()]
    assert kinds == [True, True, False]
    assert value_of(store.read(refs[2]).parts) == 2


def test_a_bucket_that_does_not_exist_is_a_clear_error(s3_options: dict[str, Any]) -> None:
    store = ObjectStore("s3://no-such-bucket/x", s3_options)
    for verb in (lambda: store.lock("test"), lambda: store.append(header(), parts())):
        with pytest.raises(BackupError, match=r"no-such-bucket.*does not exist"):
            verb()


class TestManners:
    """Stores differ in how they refuse to overwrite."""

    @pytest.fixture
    def memory(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], ObjectFolder]:
        really = MemoryFileSystem.pipe_file

        def with_manner(manner: Any) -> ObjectFolder:
            def pipe_file(fs: MemoryFileSystem, path: str, data: bytes, **named: Any) -> None:
                manner(lambda **more: really(fs, path, data, **more), named)

            monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
            return ObjectFolder(f"memory://{id(with_manner)}", {})

        return with_manner

    @staticmethod
    def no_mode(put: Any, named: dict[str, Any]) -> None:
        if named:
            raise TypeError("unexpected keyword argument 'mode'")
        put()

    @staticmethod
    def no_conditions(put: Any, named: dict[str, Any]) -> None:
        if named:
            raise OSError(errno.ENOSYS, "A header you provided implies functionality")
        put()

    @staticmethod
    def other_words(put: Any, named: dict[str, Any]) -> None:
        try:
            put(**named)
        except FileExistsError:
            raise OSError(errno.EINVAL, "precondition failed") from None

    @staticmethod
    def sent_twice(put: Any, named: dict[str, Any]) -> None:
        put(**named)
        put(**named)

    @pytest.mark.parametrize("manner", [no_mode, no_conditions, other_words])
    def test_create_never_overwrites(self, memory: Any, manner: Any) -> None:
        folder = memory(manner)
        folder.create("a", b"one")
        with pytest.raises(FileExistsError):
            folder.create("a", b"two")
        assert folder.read("a") == b"one"

    def test_a_put_that_was_sent_twice_is_not_taken_for_another_s(self, memory: Any) -> None:
        folder = memory(self.sent_twice)
        folder.create("a", b"one")
        assert folder.read("a") == b"one"

    def test_a_failure_of_the_network_is_explained(self, memory: Any) -> None:
        def down(put: Any, named: dict[str, Any]) -> None:
            raise RuntimeError("connection reset")

        folder = memory(down)
        with pytest.raises(BackupError, match=r"RuntimeError: connection reset.*credentials"):
            folder.create("a", b"one")


def test_a_driver_that_lost_track_reads_the_numbers_anew(store: ObjectStore) -> None:
    with store.lock("test"):
        store.append_commit(record(0))
        other = ObjectStore(store._folder.url, store._options)
        other._lock = store._lock
        other.append_commit(record(1))
        with pytest.raises(BackupError, match="not committed"):
            store.append_commit(record(2))
        store.append_commit(record(2))
    assert store.read_commits().history.last_epoch == 2
