"""The logs of a local store: who writes to which, what is found in them, when they go."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import tether.backup
from tether.backup import FrameRef, LocalStore
from tether.backup import files as files_module
from tether.core.errors import BackupUnreadableError

from .samples import flip, header, parts, run_epochs, value_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def logs(root: Path) -> list[Path]:
    return sorted(root.glob("slots/*/*/*.log"))


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


@pytest.mark.parametrize("moment", ["try_lock", "fsync"])
def test_a_log_that_is_being_created_is_left_alone(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its creator has made the file but not locked it; or has written it but is not yet sure."""
    module = files_module if moment == "try_lock" else os
    really = getattr(module, moment)
    others: list[FrameRef] = []

    def another_comes_first(descriptor: int) -> object:
        if (root / "slots").is_dir() and os.fstat(descriptor).st_mode & 0o777 == 0o600:
            monkeypatch.undo()
            others.append(LocalStore(root).append(header(kind="partial", sequence=1), parts(1)))
        return really(descriptor)

    monkeypatch.setattr(module, moment, another_comes_first)
    ref = store.append(header(kind="full"), parts(9))
    assert len({ref.name, *(other.name for other in others)}) == 2
    assert [value_of(store.read(found).parts) for found in (ref, *others)] == [9, 1]


def test_an_empty_log_is_not_even_locked(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its creator, who is about to lock it, would be turned away."""
    ref = store.append(header(kind="full"), parts())
    os.truncate(root / ref.name, 0)
    monkeypatch.setattr("tether.backup.local.try_lock", lambda _: pytest.fail("locked"))
    assert store.append(header(kind="partial", sequence=1), parts()).name != ref.name


def test_attempts_that_write_at_once_do_not_disturb_each_other(store: LocalStore) -> None:
    store.append(header(kind="full"), parts())

    def attempt(number: int) -> list[tuple[int, FrameRef]]:
        own = pickle.loads(pickle.dumps(store))
        return [
            (value, own.append(header(kind="partial", sequence=value), parts(value)))
            for value in range(10 * number, 10 * number + 10)
        ]

    with ThreadPoolExecutor(4) as pool:
        written = [pair for pairs in pool.map(attempt, range(4)) for pair in pairs]
    assert len({ref for _, ref in written}) == 40
    assert [value_of(store.read(ref).parts) for _, ref in written] == [v for v, _ in written]
    assert len(list(store.frames())) == 41


WRITER = """
import sys
from pathlib import Path
from backup.samples import header, parts
from tether.backup import LocalStore
store = LocalStore(Path(sys.argv[1]))
for n in range(100_000):
    ref = store.append(header(kind="full" if n % 9 == 0 else "partial", sequence=n), parts(n, 999))
    print(ref.name, ref.offset, ref.length, ref.digest, flush=True)
"""


@pytest.mark.chaos
def test_what_a_killed_task_was_told_is_durable_is_there(store: LocalStore, root: Path) -> None:
    paths = [Path(tether.backup.__file__).parents[2], Path(__file__).parents[1]]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
    ) as task:
        assert task.stdout is not None
        first = [task.stdout.readline() for _ in range(30)]
        task.send_signal(signal.SIGKILL)
        lines = first + task.stdout.readlines()
    told = [line.split() for line in lines if line.endswith("\n")]
    for n, (name, *numbers) in enumerate(told):
        assert value_of(store.read(FrameRef(name, *map(int, numbers))).parts) == n
    later = store.append(header(kind="partial", sequence=10**6), parts(5))
    assert value_of(store.read(later).parts) == 5
    assert later in dict(store.frames())


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
    assert [(ref.offset, ref.length) for ref, _ in found] == [(r.offset, r.length) for r in refs]
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


@pytest.mark.parametrize("name", ["slots/count/0/../../../../out.log", "slots/../../out.log"])
def test_no_reference_leads_out_of_the_store(store: LocalStore, root: Path, name: str) -> None:
    ref = store.append(header(kind="full"), parts())
    outside = root.parent / "out.log"
    outside.write_bytes((root / ref.name).read_bytes())  # a perfectly good frame
    stray = FrameRef(name, 0, ref.length, ref.digest)
    with pytest.raises(BackupUnreadableError, match="no place for a frame"):
        store.read(stray)
    with store.lock("test"), pytest.raises(BackupUnreadableError, match="no place for a frame"):
        store.drop([stray])
    assert outside.exists()


def test_files_and_folders_are_for_their_owner_only(store: LocalStore, root: Path) -> None:
    old = os.umask(0)
    try:
        with store.lock("test"):
            run_epochs(store, "Fp")
    finally:
        os.umask(old)
    for path in [root, *root.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_frame_of_very_many_batches_is_written(store: LocalStore) -> None:
    """More buffers than the kernel takes in one call."""
    batch = pa.record_batch({"v": pa.array([1.0, 2.0])})
    ref = store.append(header(), {"v": [batch] * 1000})
    assert store.read(ref).parts["v"] == [batch] * 1000
