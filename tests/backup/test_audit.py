"""Every other account of how far a commit log went: what each of them gives away."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from tether.backup import Expected, LocalStore, LogMark, ObjectStore, audit, open_store
from tether.core.errors import BackupUnreadableError

from .samples import flip, header, parts, record, run_epochs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tether.backup import BackupStore


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BackupStore:
    url = str(tmp_path / "store") if request.param == "local" else f"memory://{uuid.uuid4().hex}"
    return open_store(url)


@pytest.fixture
def mark(tmp_path: Path) -> LogMark:
    return LogMark(str(tmp_path / "checkpoint" / "tether"), "commits.json")


def problems(store: BackupStore, mark: LogMark | None, next_epoch: int, **known: int) -> list[str]:
    expected = Expected(next_epoch=next_epoch, first_epoch=0, **known)
    return audit(store.read_commits(), mark, store.frames(), expected).problems


def written(
    store: BackupStore, kinds: str, mark: LogMark | None = None, *, every_epoch: bool = False
) -> None:
    """Write epochs; a driver that has begun properly."""
    with store.lock("test"):
        store.begin_commits(-1, every_epoch=every_epoch)
        if mark is not None:
            store.keep_mark(mark)
        run_epochs(store, kinds)


def shorten(store: BackupStore, records: int) -> None:
    """Take away the newest records; what is left is a good log, only older."""
    if isinstance(store, LocalStore):
        from .test_local_commits import FILES, starts

        for name in FILES:
            path = store._root / name
            path.write_bytes(path.read_bytes()[: starts(path)[-1 - records]])
        return
    assert isinstance(store, ObjectStore)
    commits = [name for name in store._folder.sizes("commits") if name.endswith(".commit")]
    store._folder.delete(commits[-records:])


def test_a_whole_log_is_not_doubted(store: BackupStore, mark: LogMark) -> None:
    written(store, "FppFp", mark, every_epoch=False)
    for next_epoch in (4, 5, 6, 90):  # epochs without a backup leave no record
        assert problems(store, mark, next_epoch) == []


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_a_mark_gives_a_short_log_away(store: BackupStore, mark: LogMark, lost: int) -> None:
    written(store, "FppFp", mark)
    shorten(store, lost)
    assert store.read_commits().lost == []  # the log itself is none the wiser
    (problem,) = problems(store, mark, 5)
    assert f"There were 5 commit records, and {5 - lost} of them are found" in problem


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_sparks_epoch_gives_a_short_log_away(store: BackupStore, lost: int) -> None:
    written(store, "FppFp", every_epoch=True)
    assert problems(store, None, 5) == []
    assert problems(store, None, 4) == []  # the last one is run again
    shorten(store, lost)
    (problem,) = problems(store, None, 5)
    assert "about to run epoch 5" in problem
    assert problems(store, None, 5, lag=lost) == []  # those are run again, too


def test_a_log_that_begins_to_leave_every_epoch_is_not_asked_for_earlier_ones(
    store: BackupStore, mark: LogMark
) -> None:
    written(store, "Fp", mark)
    with store.lock("test"):
        store.begin_commits(39, every_epoch=True)
    assert problems(store, mark, 40) == []
    assert problems(store, mark, 41)
    with store.lock("test"):
        run_epochs(store, "p", first=40)
    assert problems(store, mark, 41) == []
    with store.lock("test"):  # and back to a policy that leaves fewer
        store.begin_commits(40, every_epoch=False)
    assert problems(store, mark, 60) == []


def test_a_log_that_is_gone_is_missed(store: BackupStore, mark: LogMark) -> None:
    assert problems(store, mark, 0) == []
    written(store, "", mark)
    assert problems(store, mark, 0) == []
    assert problems(store, mark, 7) == []  # no backup was needed yet
    if isinstance(store, LocalStore):
        shutil.rmtree(store._root)
    else:
        assert isinstance(store, ObjectStore)
        store._folder.delete(store._folder.sizes("commits"))
    assert "no commit log" in problems(store, mark, 7)[0]


def test_a_checkpoint_older_than_the_log_is_noticed(store: BackupStore, mark: LogMark) -> None:
    """Frames that it would go back to may be dropped already."""
    written(store, "FppFp", mark)
    assert "older copy of the checkpoint" in problems(store, mark, 3)[0]
    assert problems(store, mark, 3, goes_back=True) == []


def test_a_mark_of_another_record_is_noticed(store: BackupStore, mark: LogMark) -> None:
    written(store, "Fpp", mark)
    end = store.read_commits().end
    mark.write(end._replace(digest=b"another!"))
    assert "not the one that was written last" in problems(store, mark, 3)[0]


def test_a_log_ahead_of_its_mark_was_about_to_be_marked(store: BackupStore, mark: LogMark) -> None:
    written(store, "Fp", mark)
    with store.lock("test"):
        run_epochs(store, "p", first=2)  # the driver died before it wrote the mark
    assert problems(store, mark, 2) == []


def test_without_a_mark_later_backups_raise_a_doubt(store: BackupStore, mark: LogMark) -> None:
    written(store, "FppFp", mark)
    assert problems(store, None, 5) == []
    shorten(store, 2)
    assert "backups up to epoch 4" in problems(store, None, 5)[0]
    # An epoch that Spark runs again says nothing.
    assert problems(store, None, 3) == []


def test_a_damaged_mark_vouches_for_nothing(store: BackupStore, tmp_path: Path) -> None:
    mark = LogMark(str(tmp_path), "commits.json")
    written(store, "Fp", mark)
    good = (tmp_path / "commits.json").read_bytes()
    end = store.read_commits().end
    for position in range(len(good)):
        flip(tmp_path / "commits.json", position)
        try:
            assert mark.read() == end
        except BackupUnreadableError:
            assert problems(store, mark, 2) == []
        (tmp_path / "commits.json").write_bytes(good)
    with store.lock("test"):
        store.append(header(epoch=5, sequence=9), parts())
    (tmp_path / "commits.json").write_bytes(b"{")
    assert problems(store, mark, 6)


def test_a_damaged_record_is_a_problem_for_every_account(store: BackupStore, mark: LogMark) -> None:
    written(store, "Fpp", mark)
    if isinstance(store, LocalStore):
        from .test_local_commits import FILES, starts

        for name in FILES:
            flip(store._root / name, starts(store._root / name)[2] + 50)
    else:
        assert isinstance(store, ObjectStore)
        store._folder.replace("commits/000000000002.commit", b"rubbish")
    assert "Record 2 is missing" in problems(store, mark, 3)[0]


def test_an_accepted_gap_is_no_problem_any_more(store: BackupStore, mark: LogMark) -> None:
    written(store, "FppFp", mark)
    shorten(store, 2)
    with store.lock("test"):
        store.begin_commits(4, every_epoch=False, gap="two records are lost")
        store.keep_mark(mark)
        assert problems(store, mark, 5) == []
        run_epochs(store, "p", first=5)
    assert problems(store, mark, 6) == []
    assert store.read_commits().history.gaps == ["two records are lost"]


@pytest.mark.parametrize("place", [str, lambda path: f"file://{path}", lambda _: "memory://mark"])
def test_a_mark_is_kept_anywhere(tmp_path: Path, place: Callable[[Path], str]) -> None:
    store = LocalStore(tmp_path / "store")
    mark = LogMark(place(tmp_path / "a b" / "c"), "commits.json")
    with store.lock("test"):
        store.keep_mark(mark)
        assert mark.read() == store.read_commits().end
        run_epochs(store, "Fp")
        assert mark.read() == store.read_commits().end
        store.append_commit(record(2))
    assert mark.read() == store.read_commits().end
    again = LogMark(place(tmp_path / "a b" / "c"), "commits.json")
    assert again.read() == mark.read()


def test_another_drivers_store_does_not_write_our_mark(tmp_path: Path) -> None:
    store, mark = LocalStore(tmp_path / "store"), LogMark(str(tmp_path), "mark.json")
    with store.lock("one"):
        store.keep_mark(mark)
    with store.lock("two"):
        run_epochs(store, "F")
    assert mark.read().number == 0
