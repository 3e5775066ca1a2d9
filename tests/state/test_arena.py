from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tether import process as process_module
from tether.core.errors import ArenaError
from tether.state import (
    Arena,
    Identity,
    Owner,
    Refused,
    SlotState,
    arena_directory,
    arena_root,
    sweep,
)
from tether.state import roots as roots_module
from tether.state.header import MAGIC_WORD
from tether.state.lock import DirectoryLock


def fill(arena: Arena) -> None:
    state = SlotState.open(arena)
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"})
    state.begin(0)
    table.add([[1]], n=1)
    state.commit(0)


def test_attach_what_was_created(tmp_path: Path, identity: Identity) -> None:
    directory = tmp_path / "deep" / "a"
    assert Arena.attach(directory, identity) is None
    assert not directory.exists()
    made = Arena.create(directory, identity)
    fill(made)
    made.release()
    found = Arena.attach(directory, identity)
    assert isinstance(found, Arena)
    assert SlotState.open(found).version == 0
    found.release()


def test_files_are_private(arena: Arena) -> None:
    fill(arena)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in arena.directory.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(arena.directory.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"query": "other"}, "another query"),
        ({"operator": "other"}, "another operator"),
        ({"slot": 1}, "another slot"),
        ({"slots": 2}, "number of slots"),
        ({"fingerprint": "other"}, "program has changed"),
        ({"boot": "other"}, "started again"),
        ({"layout": 99}, "version of Tether"),
    ],
)
def test_a_foreign_or_stale_arena_is_refused(
    arena: Arena, identity: Identity, change: dict[str, object], reason: str
) -> None:
    arena.release()
    wanted = dataclasses.replace(identity, **change)  # type: ignore[arg-type]
    found = Arena.attach(arena.directory, wanted)
    assert isinstance(found, Refused)
    assert reason in found.reason
    made = Arena.create(arena.directory, wanted)  # refusing released the lock
    made.release()


def test_creating_wipes_what_was_there(arena: Arena, identity: Identity) -> None:
    fill(arena)
    arena.release()
    anew = Arena.create(arena.directory, identity)
    assert not arena.valid()
    assert anew.valid()
    state = SlotState.open(anew)
    assert (state.version, state.specs()) == (-1, {})
    anew.release()


def test_a_half_made_arena_is_refused(arena: Arena, identity: Identity) -> None:
    arena.header.slot.words[MAGIC_WORD] = 0
    arena.release()
    assert isinstance(Arena.attach(arena.directory, identity), Refused)
    (arena.directory / "identity.json").write_text('{"query": ')
    assert isinstance(Arena.attach(arena.directory, identity), Refused)
    (arena.directory / "head").unlink()
    assert Arena.attach(arena.directory, identity) is None


@pytest.mark.parametrize("left", ["whole", "not-finished", "no-head", "only-lock", "nothing"])
def test_what_is_left_of_an_arena_is_discarded(arena: Arena, identity: Identity, left: str) -> None:
    """A process that makes or removes one may be killed at any step; the memory is given back."""
    fill(arena)
    arena.header.slot.words[MAGIC_WORD] *= left != "not-finished"
    arena.release()
    for path in list(arena.directory.iterdir()):
        gone = {"no-head": path.name == "head", "only-lock": path.name != "lock", "nothing": True}
        if gone.get(left, False):
            path.unlink()
    Arena.discard(arena.directory, identity)
    assert not arena.directory.exists()
    Arena.discard(arena.directory, identity)


def test_the_arena_of_another_or_in_use_is_not_discarded(arena: Arena, identity: Identity) -> None:
    with pytest.raises(ArenaError, match="in use"):
        Arena.discard(arena.directory, identity, wait=0)
    arena.release()
    Arena.discard(arena.directory, dataclasses.replace(identity, slots=identity.slots + 1))
    found = Arena.attach(arena.directory, identity)
    assert isinstance(found, Arena)
    found.release()


def test_other_files_are_never_removed(tmp_path: Path, identity: Identity) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(ArenaError, match="not an arena's"):
        Arena.create(tmp_path, identity)
    with pytest.raises(ArenaError, match="not an arena's"):
        Arena.discard(tmp_path, identity)
    assert (tmp_path / "precious").read_text() == "data"


def test_an_unwritable_place_is_a_clear_error(tmp_path: Path, identity: Identity) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArenaError, match="cannot be made"):
        Arena.create(tmp_path / "file" / "a", identity)


def test_the_lock_names_its_holder(arena: Arena, identity: Identity) -> None:
    with pytest.raises(ArenaError, match=f"process {os.getpid()}"):
        Arena.attach(arena.directory, identity, wait=0.02)
    arena.release()
    arena.acquire()
    with pytest.raises(ArenaError, match="in use"):
        Arena.create(arena.directory, identity, wait=0.0)


def test_waiting_for_the_lock(arena: Arena, identity: Identity) -> None:
    timer = threading.Timer(0.05, arena.release)
    timer.start()
    found = Arena.attach(arena.directory, identity, wait=120)
    assert isinstance(found, Arena)
    found.release()
    timer.join()


_HOLD = """
import pathlib, signal, sys
from tether.state.lock import DirectoryLock
lock = DirectoryLock(pathlib.Path(sys.argv[1]))
lock.acquire(0)
print("held", flush=True)
signal.pause()
"""


def test_the_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLD, str(tmp_path / "a")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = DirectoryLock(tmp_path / "a")
        with pytest.raises(ArenaError, match=f"process {holder.pid}"):
            lock.acquire(0)
        holder.kill()
    lock.acquire(60)
    assert lock.held
    lock.release()


def test_a_lock_on_a_removed_directory_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tether.state import lock as lock_module

    real = lock_module.fcntl.flock
    removals = 2

    def remove_first(descriptor: int, how: int) -> None:
        nonlocal removals
        if removals:
            removals -= 1
            shutil.rmtree(tmp_path / "a")
        real(descriptor, how)

    monkeypatch.setattr(lock_module.fcntl, "flock", remove_first)
    lock = DirectoryLock(tmp_path / "a")
    lock.acquire(60)
    assert (tmp_path / "a" / "lock").exists()
    lock.release()


def test_sweeping(tmp_path: Path, identity: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        gone = Owner.of(process.pid)
        assert gone.alive()
        process.kill()
    assert not gone.alive()
    me = Owner.of(os.getpid())
    assert me.alive()
    reused = Owner(os.getpid(), "some other start")
    owners = {"mine": me, "node": None, "gone": gone, "reused": reused, "held": gone}
    arenas = {name: Arena.create(tmp_path / name, identity, owner=o) for name, o in owners.items()}
    for name, arena in arenas.items():
        if name != "held":
            arena.release()
    old = json.loads((tmp_path / "node" / "identity.json").read_text())
    shutil.copytree(tmp_path / "node", tmp_path / "old")
    (tmp_path / "old" / "identity.json").write_text(json.dumps({**old, "boot": "before"}))
    lock = DirectoryLock(tmp_path / "half")
    lock.acquire(0)
    lock.release()
    (tmp_path / "half" / "head").touch()
    shutil.copytree(tmp_path / "node", tmp_path / "half-removed")
    (tmp_path / "half-removed" / "head").unlink()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "lock").touch()
    (tmp_path / "foreign" / "data").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    swept = sweep(tmp_path)
    assert {path.name for path in swept} == {"gone", "reused", "old", "half", "half-removed"}
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"mine", "node", "held", "foreign", "empty", "file"}
    assert sweep(tmp_path / "nowhere") == []
    arenas["held"].release()


def test_destroying(arena: Arena) -> None:
    fill(arena)
    arena.destroy()
    assert not arena.directory.exists()
    assert not arena.valid()


def test_choosing_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shm"
    shared.mkdir()
    monkeypatch.setattr(roots_module, "_SHARED_MEMORY", shared)
    mine = f"tether-{os.geteuid()}"
    fallback = tmp_path / "fallback"
    assert arena_root(1000, fallback=fallback) == shared / mine
    assert stat.S_IMODE((shared / mine).stat().st_mode) == 0o700
    assert arena_root(1000, fallback=fallback, preferred=tmp_path / "p") == tmp_path / "p" / mine
    monkeypatch.setattr(
        roots_module, "free_bytes", lambda path: 10 if "shm" in str(path) else 10**9
    )
    assert arena_root(1000, fallback=fallback) == fallback / mine
    monkeypatch.setattr(roots_module, "_SHARED_MEMORY", tmp_path / "absent")
    assert arena_root(1000, fallback=fallback) == fallback / mine
    with pytest.raises(ArenaError, match="are free"):
        arena_root(10**10, fallback=fallback)


def test_a_root_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / f"tether-{os.geteuid()}").symlink_to(tmp_path)
    with pytest.raises(ArenaError, match="link"):
        arena_root(0, fallback=tmp_path, preferred=base)
    (tmp_path / "file").touch()
    with pytest.raises(ArenaError, match="cannot be kept"):
        arena_root(0, fallback=tmp_path, preferred=tmp_path / "file")


def test_an_open_root_is_closed_to_others(tmp_path: Path) -> None:
    mine = tmp_path / f"tether-{os.geteuid()}"
    mine.mkdir(mode=0o755)
    arena_root(0, fallback=tmp_path, preferred=tmp_path)
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700


def test_directories_differ_by_slot_and_query(tmp_path: Path, identity: Identity) -> None:
    others = [
        identity,
        dataclasses.replace(identity, slot=1),
        dataclasses.replace(identity, query="other"),
        dataclasses.replace(identity, operator="../../etc"),
    ]
    directories = [arena_directory(tmp_path, other) for other in others]
    assert len(set(directories)) == len(others)
    assert all(directory.parent == tmp_path for directory in directories)
    changed = dataclasses.replace(identity, fingerprint="new program")
    assert arena_directory(tmp_path, changed) == directories[0]  # found there, and refused


def test_without_a_boot_id_nothing_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = process_module.boot_id()
    monkeypatch.setattr(process_module, "_BOOT_ID", Path("no such file"))
    assert process_module.boot_id() != known
    assert process_module.boot_id() == process_module.boot_id()
