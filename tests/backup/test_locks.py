"""Two drivers on one store: real processes, leases that run out, drivers that come back."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import tether.backup
from tether.backup import LocalStore, ObjectStore, StoreAddress
from tether.backup.objectio import ObjectFolder
from tether.core.errors import BackupError, BackupLockedError
from tether.process import Owner

from .samples import record, run_epochs

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = 120.0
"""Seconds; far more than anything here takes, also on a machine that does much else besides."""
HOLDER = """
import sys, time
from pathlib import Path
from tether.backup import LocalStore
lock = LocalStore(Path(sys.argv[1])).lock("first query")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def first_driver(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock of ``tmp_path`` until it is ended."""
    source = Path(tether.backup.__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


@pytest.mark.chaos
def test_the_kernel_frees_the_lock_of_a_killed_driver(
    tmp_path: Path, first_driver: subprocess.Popen[str]
) -> None:
    with pytest.raises(BackupLockedError) as caught:
        LocalStore(tmp_path).lock("second query")
    message = str(caught.value)
    assert "'first query'" in message
    assert f"process {first_driver.pid} on {os.uname().nodename}, since 20" in message
    assert "What to do" in message
    first_driver.send_signal(signal.SIGKILL)
    first_driver.wait()
    store = LocalStore(tmp_path)
    with store.lock("second query") as lock:
        lock.check()
        store.append_commit(record(0))


def test_a_holder_without_a_name_is_still_a_holder(tmp_path: Path) -> None:
    with LocalStore(tmp_path).lock("one"):
        (tmp_path / "lock").write_bytes(b"\xffgarbage")
        with pytest.raises(BackupLockedError, match="not yet said its name"):
            LocalStore(tmp_path).lock("two")


def test_a_directory_that_was_replaced_under_the_query_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = LocalStore(root)
    with store.lock("one"):
        root.rename(tmp_path / "moved")
        with pytest.raises(BackupError, match="removed or replaced"):
            store.append_commit(record(0))
        with LocalStore(root).lock("two"), pytest.raises(BackupError, match="replaced"):
            store.append_commit(record(0))


# --- leases ----------------


def lease(folder: ObjectFolder) -> dict[str, Any]:
    return msgspec.json.decode(folder.read("lock.json"))


def expire(folder: ObjectFolder) -> None:
    """What the lock object looks like when its holder was killed a while ago."""
    old = lease(folder)
    old["expires_at"] = time.time() - 1
    folder.replace("lock.json", msgspec.json.encode(old))


@pytest.fixture
def folder(object_address: StoreAddress) -> ObjectFolder:
    return ObjectFolder(object_address.url, object_address.storage_options)


@pytest.fixture
def opened(object_address: StoreAddress) -> Callable[..., ObjectStore]:
    def open_one(**settings: Any) -> ObjectStore:
        return ObjectStore(object_address.url, object_address.storage_options, **settings)

    return open_one


def test_a_lease_that_ran_out_is_taken_over_and_the_old_holder_told(
    opened: Callable[..., ObjectStore], folder: ObjectFolder
) -> None:
    first, second = opened(), opened()
    lost = first.lock("one")
    first.append_commit(record(0))
    expire(folder)
    with second.lock("two") as lock:
        lock.check()
        second.append_commit(record(1))
        with pytest.raises(BackupLockedError, match="held by 'two'"):
            first.append_commit(record(1))
        with pytest.raises(BackupLockedError, match="held by 'two'"):
            lost.renew()
        lost.release()
        lock.check()  # the loser's release did not free what is not its own
    assert second.read_commits().history.last_epoch == 1
    assert "lock.json" not in folder.sizes()


def pass_to(folder: ObjectFolder, **holder: Any) -> None:
    """Let the lock object say that somebody else holds it."""
    old = lease(folder)
    old["holder"] |= holder
    folder.replace("lock.json", msgspec.json.encode(old))


def dead_process() -> dict[str, Any]:
    """A process of this machine that was killed, as a lock names it."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    named = {"pid": child.pid, "process_started": Owner.of(child.pid).started}
    child.kill()
    child.wait()
    return named


def test_a_holder_that_is_known_to_be_dead_is_not_waited_for(
    opened: Callable[..., ObjectStore], folder: ObjectFolder
) -> None:
    first, second = opened(), opened()
    first.lock("one")
    pass_to(folder, **dead_process())
    with second.lock("two") as lock:
        lock.check()


@pytest.mark.parametrize(
    "holder",
    [
        pytest.param({"numbers": "another boot pid:[1]"}, id="on-another-machine"),
        pytest.param({"numbers": ""}, id="of-an-older-release"),
        pytest.param({"pid": os.getpid()}, id="alive"),
    ],
)
def test_a_holder_that_may_live_is_waited_for(
    opened: Callable[..., ObjectStore], folder: ObjectFolder, holder: dict[str, Any]
) -> None:
    first, second = opened(), opened()
    held = first.lock("one")
    alive = {"process_started": Owner.of(os.getpid()).started} if "pid" in holder else {}
    pass_to(folder, **dead_process() | holder | alive)
    with pytest.raises(BackupLockedError, match="held by 'one'"):
        second.lock("two")
    held.release()


def test_a_holder_knows_by_its_own_clock_that_its_lease_ran_out(
    opened: Callable[..., ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(lease_seconds=30.0)
    with store.lock("one") as lock:
        now = time.monotonic()
        monkeypatch.setattr("tether.backup.object_lock.time.monotonic", lambda: now + 31)
        with pytest.raises(BackupLockedError, match="lease ran out"):
            lock.check()
        monkeypatch.undo()
        with pytest.raises(BackupLockedError, match="lease ran out"):
            store.append_commit(record(0))  # lost once is lost for good


def test_renewing_prolongs_the_lease(
    opened: Callable[..., ObjectStore], folder: ObjectFolder
) -> None:
    with opened().lock("one") as lock:
        expire(folder)
        lock.renew()
        assert lease(folder)["expires_at"] > time.time() + 30
        with pytest.raises(BackupLockedError):
            opened().lock("two")


def renewing_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "tether-lease"}


def test_a_thread_renews_by_itself_until_the_release(
    opened: Callable[..., ObjectStore], folder: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: queue.Queue[float] = queue.Queue()
    really = ObjectFolder.replace

    def replace(self: ObjectFolder, name: str, data: bytes, **named: Any) -> None:
        really(self, name, data, **named)
        renewed.put(msgspec.json.decode(data)["expires_at"])

    monkeypatch.setattr(ObjectFolder, "replace", replace)
    others = renewing_threads()
    with opened(lease_seconds=0.3).lock("one"):
        first, second = (renewed.get(timeout=WAIT) for _ in range(2))
        assert second > first
        assert lease(folder)["expires_at"] >= second
        assert len(renewing_threads() - others) == 1
    assert renewing_threads() <= others


def test_a_network_that_fails_for_a_while_does_not_cost_the_lock(
    opened: Callable[..., ObjectStore],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = threading.Event()
    with opened(lease_seconds=0.3).lock("one") as lock:
        with monkeypatch.context() as patch:

            def refuse(*_: Any, **__: Any) -> None:
                tried.set()
                raise BackupError("no network")

            patch.setattr(ObjectFolder, "replace", refuse)
            assert tried.wait(timeout=WAIT)
        lock._seconds = 600.0  # what follows may take longer than the short lease
        lock.renew()
        lock.check()
    assert "could not be renewed" in caplog.text


@pytest.mark.parametrize("object_address", ["s3"], indirect=True)  # it has conditional puts
def test_of_two_that_take_over_at_once_one_gets_it(
    opened: Callable[..., ObjectStore], folder: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second takes over between the first one's look and its write."""
    dead = opened().lock("dead")
    expire(folder)
    rivals = []
    really = ObjectFolder.replace

    def replace(self: ObjectFolder, *args: Any, **named: Any) -> None:
        if not rivals:
            rivals.append(None)
            rivals[0] = opened().lock("quicker")
        really(self, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFolder, "replace", replace)
        with pytest.raises(BackupLockedError, match="held by 'quicker'"):
            opened().lock("slower")
    rivals[0].check()
    rivals[0].release()
    dead.release()


@pytest.mark.parametrize("object_address", ["s3"], indirect=True)
def test_a_late_renewal_does_not_take_the_lock_back(
    opened: Callable[..., ObjectStore], folder: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder has just seen that the lock is its own when its successor takes over."""
    late = opened().lock("late")
    really = ObjectFolder.replace
    successors = []

    def replace(self: ObjectFolder, *args: Any, **named: Any) -> None:
        if not successors:
            successors.append(None)
            expire(folder)
            successors[0] = opened().lock("successor")
        really(self, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectFolder, "replace", replace)
        with pytest.raises(BackupError):
            late.renew()
    successors[0].check()
    with pytest.raises(BackupLockedError, match="held by 'successor'"):
        late.check()
    successors[0].release()
    late.release()


def test_a_damaged_lock_object_is_no_free_lock(
    opened: Callable[..., ObjectStore], folder: ObjectFolder
) -> None:
    folder.replace("lock.json", b"{")
    with pytest.raises(BackupLockedError, match=r"delete lock\.json"):
        opened().lock("one")


def test_a_frozen_driver_cannot_commit_beside_its_successor(
    opened: Callable[..., ObjectStore], folder: ObjectFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its check passed, then it slept through its lease: the number of its record is taken."""
    frozen, successor = opened(), opened()
    lock = frozen.lock("frozen")
    run_epochs(frozen, "F")
    expire(folder)
    with successor.lock("successor"):
        run_epochs(successor, "p", first=1)
        monkeypatch.setattr(type(lock), "check", lambda self: None)
        with pytest.raises(BackupLockedError, match="Another driver has taken over"):
            frozen.append_commit(record(1))
    history = successor.read_commits().history
    assert [c.epoch for c in history.chain("count", 0, 9)] == [0, 1]
    lock.release()
