"""Any bytes in a backup directory: our own errors only, no hang, and never a wrong state in silence."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.backup import LocalStore
from tether.backup.inspect import describe_store
from tether.backup.manifest import Manifest, decode_manifest, encode_manifest
from tether.backup.recovery import recover_chain
from tether.core.errors import BackupUnreadableError, TetherError

from .samples import run_epochs, value_of
from .test_stores import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCHS = "FppFpp"
VALUES = [3, 4, 5]
"""What the newest generation holds, oldest first."""


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    """A good directory: two generations of a slot."""
    with tempfile.TemporaryDirectory() as name:
        store = LocalStore(Path(name) / "store")
        with store.lock("test"):
            store.write_manifest(MANIFEST)
            run_epochs(store, EPOCHS)
        yield Path(name) / "store"


def damage() -> st.SearchStrategy[list[tuple[str, float, bytes]]]:
    """Changes to a file: what, where (as a part of its length), and with which bytes."""
    kinds = st.sampled_from(["overwrite", "insert", "cut", "truncate", "replace", "append"])
    change = st.tuples(kinds, st.floats(0, 1), st.binary(min_size=1, max_size=40))
    return st.lists(change, min_size=1, max_size=3)


def damaged(data: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, where, garbage in changes:
        at = int(where * len(data))
        data = {
            "overwrite": data[:at] + garbage + data[at + len(garbage) :],
            "insert": data[:at] + garbage + data[at:],
            "cut": data[:at] + data[at + len(garbage) :],
            "truncate": data[:at],
            "replace": garbage,
            "append": data + garbage,
        }[kind]
    return data


@settings(max_examples=80)
@given(
    where=st.sampled_from(["commits.log", "commits.copy", "frames"]),
    pick=st.integers(0, 9),
    changes=damage(),
)
def test_a_damaged_directory_never_restores_a_wrong_state_in_silence(
    whole: Path, where: str, pick: int, changes: list[tuple[str, float, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "store"
        shutil.copytree(whole, root)
        files = sorted(root.glob("slots/*/*/*.log")) if where == "frames" else [root / where]
        victim = files[pick % len(files)]
        before = victim.read_bytes()
        victim.write_bytes(damaged(before, changes))
        store = LocalStore(root)
        log = store.read_commits()
        try:
            chain = recover_chain(store, log.history, "count", 0, 100)
        except TetherError:
            assert victim.read_bytes() != before
            return
        found = [value_of(frame.parts) for frame in chain.frames]
        assert set(found) <= set(range(len(EPOCHS)))  # no frame that was never written
        told = bool(chain.unreadable or chain.extra_bound or log.damaged)
        assert found == VALUES or (told and where == "frames")  # the other copy makes it good


@settings(max_examples=50)
@given(
    changes=damage(),
    victim=st.sampled_from(["manifest.json", "commits.log", "commits.copy", "lock", "frames"]),
)
def test_looking_at_a_damaged_directory_fails_with_our_own_errors_only(
    whole: Path, victim: str, changes: list[tuple[str, float, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "store"
        shutil.copytree(whole, root)
        for path in root.glob("slots/*/*/*.log") if victim == "frames" else [root / victim]:
            path.write_bytes(damaged(path.read_bytes(), changes))
        store = LocalStore(root)
        try:
            report = describe_store(store, verify=True)
        except TetherError:
            pass
        else:
            assert victim != "frames" or report.damage or any(s.frames for s in report.slots)
        with store.lock("a new driver"):  # whatever the old lock file says
            pass


@given(changes=damage())
def test_a_damaged_manifest_is_refused_or_reads_as_one(
    changes: list[tuple[str, float, bytes]],
) -> None:
    try:
        found = decode_manifest(damaged(encode_manifest(MANIFEST), changes))
    except BackupUnreadableError:
        return
    assert isinstance(found, Manifest)


@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_in_place_of_every_file(whole: Path, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "store"
        shutil.copytree(whole, root)
        for path in root.rglob("*"):
            if path.is_file():
                path.write_bytes(data)
        store = LocalStore(root)
        with pytest.raises(BackupUnreadableError):
            store.read_manifest()
        log = store.read_commits()
        assert log.history.last_epoch is None
        assert log.damaged
        assert not log.began
        for _, header in store.frames():
            assert isinstance(header, BackupUnreadableError)


def test_names_in_a_hostile_commit_log_do_not_leave_the_directory(tmp_path: Path) -> None:
    """A log with right checksums that names a file elsewhere: it is refused before it is opened."""
    from .samples import commit, header, record

    secret = tmp_path / "secret"
    secret.write_text("not yours")
    store = LocalStore(tmp_path / "store")
    for name in ("../secret", "slots/../../../secret", "/etc/passwd", "slots/count/0/../../../x"):
        head = header(kind="full")
        ref = msgspec.structs.replace(store.append(head, {}), name=name)
        with store.lock("test"):
            store.append_commit(record(1, count=commit(ref, head)))
        with pytest.raises(BackupUnreadableError, match="no place for a frame"):
            recover_chain(store, store.read_commits().history, "count", 0, 100)
    assert secret.read_text() == "not yours"


def test_everything_that_is_written_is_its_owners_alone(whole: Path) -> None:
    for path in [whole, *whole.rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert path.stat().st_mode & 0o777 == wanted, path


def test_no_module_that_reads_stored_data_unpickles() -> None:
    """Only what comes from the driver's own process is: the operator, in the task's closure."""
    root = Path(__file__).resolve().parents[2] / "src" / "tether"
    found = {
        path.relative_to(root).as_posix()
        for package in (
            "backup",
            "state",
            "core",
            "engine",
            "policies",
            "protocols",
            "spark",
            "sql",
        )
        for path in (root / package).rglob("*.py")
        if "pickle.load" in path.read_text(encoding="utf-8")
    }
    assert found == {
        "engine/slot/resident.py",  # the operator, from the closure
        "engine/slot/program.py",  # the same, before its kind of store is opened
        "state/river.py",  # allow_pickle=True alone
        "backup/opening.py",  # in its doctest
    }
