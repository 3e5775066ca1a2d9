"""The injector does what it says: once, to the right one, and tells of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.backup.samples import header, parts, run_epochs, value_of
from tests.refusals import or_skip

from tether.backup import LocalStore
from tether.chaos.faults import DRIVER_STORE_POINTS, SLOT_STORE_POINTS, reach
from tether.chaos.store_faults import TroubledStore, with_trouble
from tether.core.errors import BackupError, BackupUnreadableError, BadValueError, TetherError
from tether.testing.bundle import explained_run
from tether.testing.disks import small_disk
from tether.testing.injector import Injector
from tether.testing.leftovers import Leftovers, is_locked
from tether.testing.networks import cuttable_host
from tether.testing.processes import command_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT = 120.0
"""Seconds; far more than anything here takes, also on a machine that does much else besides."""


@pytest.fixture
def injector(tmp_path: Path) -> Injector:
    return Injector(tmp_path / "strikes", seed=3)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def was_continued(pid: int) -> bool:
    """Whether a child of ours was stopped and goes on again; told once, however late one asks."""
    return os.waitid(os.P_PID, pid, os.WCONTINUED | os.WNOHANG) is not None


def test_a_planned_fault_strikes_once_where_it_is_meant(injector: Injector) -> None:
    injector.at("halfway", "raise", slot=1, operator="sum", epoch=3)
    faults = tuple(injector.faults)
    for elsewhere in [("before-attach", 1, 3, "sum"), ("halfway", 0, 3, "sum")]:
        assert not reach(faults, *elsewhere)
    assert not reach(faults, "halfway", 1, 2, "sum")
    assert not reach(faults, "halfway", 1, 3, "join")
    assert injector.struck() == []
    with pytest.raises(RuntimeError, match="on purpose"):
        reach(faults, "halfway", 1, 4, "sum")
    assert not reach(faults, "halfway", 1, 4, "sum")
    (strike,) = injector.struck()
    assert strike.what == "raise at halfway"
    assert f"process {os.getpid()}, slot 1, epoch 4" in strike.victim


def test_a_process_that_hangs_goes_on_by_itself(injector: Injector) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        until(lambda: "sleep 60" in command_of(process.pid))  # it is what it will be
        injector.hang(process.pid, 0.3)
        until(lambda: was_continued(process.pid))
        injector.kill(process.pid)
        assert process.wait(WAIT) == -signal.SIGKILL
    assert [strike.what for strike in injector.struck()] == ["hang for 0.3 s", "kill"]
    assert all("sleep 60" in strike.victim for strike in injector.struck())


def test_the_same_seed_strikes_the_same(tmp_path: Path) -> None:
    plans = []
    for name, seed in [("a", 5), ("b", 5), ("c", 6)]:
        injector = Injector(tmp_path / name, seed=seed)
        faults = injector.scatter(20, epochs=9, slots=4, actions=("kill", "hang"))
        plans.append([(f.point, f.action, f.slot, f.epoch) for f in faults])
    assert plans[0] == plans[1] != plans[2]
    assert {plan[0] for plan in plans[0]} > {"halfway", "during-backup"}


def test_a_process_hangs_before_its_time_begins_to_count(
    injector: Injector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is to wake it is quicker than this process: it must not be stopped for good."""
    really = subprocess.Popen

    def slowly(*args: Any, **options: Any) -> subprocess.Popen[Any]:
        started = really(*args, **options)
        time.sleep(0.2)
        return started

    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(subprocess, "Popen", slowly)
        injector.hang(process.pid, 0.01)
        until(lambda: was_continued(process.pid))
        process.kill()


def test_strikes_now_and_then_keep_to_their_time(
    injector: Injector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only sleeping moves: a real one may stand still for any time between two."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    monkeypatch.setattr("tether.testing.injector.time", clock)
    seen: list[float] = []
    done = injector.now_and_then(lambda: seen.append(now), seconds=0.3, every=(0.02, 0.05))
    assert done == len(seen)
    assert 6 <= done <= 15
    pauses = [after - before for before, after in pairwise([0.0, *seen])]
    assert all(0.02 <= round(pause, 9) <= 0.05 for pause in pauses)
    assert seen[-1] <= 0.3


# ---- the store ----------------------------------------------------------------------------------


def troubled(root: Path, injector: Injector) -> TroubledStore:
    found = with_trouble(
        LocalStore(root),
        injector.faults,
        str(root),
        points=SLOT_STORE_POINTS + DRIVER_STORE_POINTS,
    )
    assert isinstance(found, TroubledStore)
    return found


def test_without_faults_a_store_is_itself(tmp_path: Path, injector: Injector) -> None:
    store = LocalStore(tmp_path / "store")
    injector.at("halfway")
    points = SLOT_STORE_POINTS
    assert with_trouble(store, injector.faults, str(tmp_path), points=points) is store


def test_a_store_that_fails_fails_once_and_writes_nothing(
    tmp_path: Path, injector: Injector
) -> None:
    injector.at("store-append", "fail", epoch=1)
    injector.at("store-commit", "fail", epoch=2)
    store = troubled(tmp_path / "store", injector)
    with store.lock("test"):
        run_epochs(store, "F")
        with pytest.raises(BackupError, match="on purpose at store-append"):
            run_epochs(store, "p", first=1)
        run_epochs(store, "p", first=1)
        with pytest.raises(BackupError, match="on purpose at store-commit"):
            run_epochs(store, "p", first=2)
    assert store.read_commits().history.last_epoch == 1
    assert not is_locked(tmp_path / "store")


def test_a_torn_frame_is_acknowledged_and_found_out(tmp_path: Path, injector: Injector) -> None:
    injector.at("store-append", "tear")
    store = troubled(tmp_path / "store", injector)
    ref = store.append(header(), parts(1))
    with pytest.raises(BackupUnreadableError, match="torn"):
        store.read(ref)
    later = store.append(header(kind="partial", sequence=1), parts(2))
    assert value_of(store.read(later).parts) == 2  # nothing is written behind a torn frame


def test_a_stalled_store_is_late_and_a_stale_one_tells_old_news(
    tmp_path: Path, injector: Injector
) -> None:
    injector.at("store-read", "stale")
    injector.at("store-append", "stall", seconds=0.2, epoch=9)
    store = troubled(tmp_path / "store", injector)
    with store.lock("test"):
        run_epochs(store, "Fppp")
        assert store.read_commits().history.last_epoch == 1
        assert store.read_commits().history.last_epoch == 3
        began = time.monotonic()
        run_epochs(store, "p", first=9)
        assert time.monotonic() - began >= 0.2


def test_an_object_store_cannot_be_torn_by_a_fault(injector: Injector) -> None:
    injector.at("store-read", "stale")
    store = TroubledStore(LocalStore("/nowhere"), injector.faults, "s3://bucket/x")
    with pytest.raises(BadValueError, match="proxy"):
        store.read_commits()


# ---- places -------------------------------------------------------------------------------------


def test_a_full_disk_is_an_error_that_says_so_and_nothing_is_lost(
    tmp_path: Path, injector: Injector
) -> None:
    with or_skip(injector.full_disk(1 << 20)) as disk:
        store = LocalStore(disk.path / "store")
        with store.lock("test"):
            run_epochs(store, "F")
            disk.fill()
            with pytest.raises(BackupError, match="Free space"):
                store.append(header(epoch=1, kind="full"), parts(rows=50_000))
            disk.free()
            (ref,) = run_epochs(store, "F", first=1)
        assert value_of(store.read(ref).parts) == 1
        assert store.read_commits().damaged == []
    assert not disk.path.exists()


def test_who_may_not_mount_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 32, "", "must be superuser")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(TetherError, match="superuser"), small_disk(tmp_path / "d", 1000):
        pass


def test_a_cut_network_lets_nothing_through_until_it_is_mended() -> None:
    with or_skip(cuttable_host()) as host:
        serve = ["python3", "-m", "http.server", "8123", "--bind", host.inside]
        with subprocess.Popen(
            [*host.launcher, *serve], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server:
            until(lambda: answers(host.inside))
            host.cut()
            assert not answers(host.inside)
            host.mend()
            until(lambda: answers(host.inside))
            server.kill()


def answers(address: str) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((address, 8123)) == 0


# ---- what explains, and what is left ------------------------------------------------------------


def test_a_red_run_leaves_a_bundle_and_names_it(tmp_path: Path, injector: Injector) -> None:
    store = LocalStore(tmp_path / "backup")
    with store.lock("test"):
        run_epochs(store, "Fp")
    (tmp_path / "work-0").mkdir()
    (tmp_path / "work-0" / "stderr").write_text("fine\nExecutorLostFailure: exited\n")
    injector.at("halfway", "raise")
    with pytest.raises(RuntimeError) as caught, explained_run(tmp_path, injector=injector):
        reach(tuple(injector.faults), "halfway", 0, 5)
    bundle = tmp_path / "bundle"
    assert str(bundle) in caught.value.__notes__[0]
    assert "raise at halfway" in (bundle / "strikes.txt").read_text()
    assert "seed 3" in (bundle / "strikes.txt").read_text()
    assert (bundle / "reasons.txt").read_text() == "work-0/stderr: ExecutorLostFailure: exited\n"
    assert "slots/count/0" in (bundle / "backups.json").read_text()


def test_processes_are_found_whoever_their_parent_is() -> None:
    left = Leftovers()
    environment = {**os.environ, **left.environment()}
    orphaning = ["sh", "-c", "sleep 60 > /dev/null & echo $!"]
    done = subprocess.run(orphaning, env=environment, check=True, stdout=subprocess.PIPE)
    orphan = int(done.stdout)
    until(lambda: "sleep 60" in command_of(orphan))  # while it becomes that, it has no environment
    assert left.processes_after(0.2) == [orphan]
    os.kill(orphan, signal.SIGKILL)
    assert left.processes_after(WAIT) == []


def test_a_held_backup_directory_is_seen(tmp_path: Path) -> None:
    with LocalStore(tmp_path / "store").lock("me"):
        assert is_locked(tmp_path / "store")
    assert not is_locked(tmp_path / "store")
