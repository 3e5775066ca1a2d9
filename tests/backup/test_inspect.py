from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tether.backup import LocalStore, SlotCommit, as_plain, describe_store
from tether.core.losses import LossRecord

from .samples import commit, flip, header, parts, record, run_epochs
from .test_stores import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

    from tether.backup import BackupStore, FrameRef, StoreAddress


def filled(store: BackupStore) -> list[FrameRef]:
    with store.lock("test"):
        store.write_manifest(MANIFEST)
        refs = run_epochs(store, "Fpp")
        again = header(
            epoch=2,
            sequence=9,
            kind="partial",
            cause="flush",
            failures=1,
            lineage="new",
            written_at=time.time() - 100,
        )
        refs.append(store.append(again, parts()))
        store.append_commit(record(2, count=commit(refs[3], again)))
        refs.append(store.append(header(operator="join", slot=1, epoch=3, lineage="j"), parts()))
    return refs


def test_a_sound_store_is_described(address: StoreAddress) -> None:
    refs = filled(address.open())
    report = describe_store(address.open(), verify=True)
    assert report.damage == []
    assert report.manifest == MANIFEST
    assert report.last_epoch == 2
    assert report.bytes_used > sum(ref.length for ref in refs)
    count, join = report.slots
    assert (count.operator, count.slot, count.failures, count.lineage) == ("count", 0, 1, "new")
    assert count.chain_length == 3
    assert [(f.epoch, f.kind, f.cause, f.standing) for f in count.frames] == [
        (0, "full", "theta", "committed"),
        (1, "partial", "theta", "committed"),
        (2, "partial", "theta", "void"),
        (2, "partial", "flush", "committed"),
    ]
    assert (count.frames[0].divergence_before, count.frames[0].divergence_after) == (3.0, 0.5)
    assert 100 <= count.frames[3].age_seconds < 1000
    assert [f.standing for f in join.frames] == ["uncommitted"]
    assert report.frames_by_cause == {"theta": 4, "flush": 1}
    assert report.bytes_by_cause["flush"] == refs[3].length
    plain = json.loads(json.dumps(as_plain(report), allow_nan=False))
    assert plain["slots"][0]["frames"][0]["entries"] == 2
    assert plain["slots"][1]["theta"] == "inf"  # nothing is recorded of what a loss of it costs


def test_what_was_lost_is_told_from_the_commit_log_alone(address: StoreAddress) -> None:
    store = address.open()
    losses = [
        LossRecord(
            lost=name, epoch=epoch, at_most=cost, theta=9.0, failures=0, under="t", extra=1.0
        )
        for name, epoch, cost in [("b", 7, 4.0), ("a", 3, 8.0)]
    ]
    with store.lock("test"):
        for loss in losses:
            made = SlotCommit(epoch=8, divergence_after=0.0, theta=4.5, losses=(loss,), failures=2)
            store.append_commit(record(8, count=made))
        # A frame may say anything of failures: that its writer recovered proves no loss.
        store.append(header(epoch=9, failures=5), parts())
    (slot,) = describe_store(address.open()).slots
    assert (slot.failures, slot.theta, slot.spent) == (2, 4.5, 14.0)
    assert [loss.lost for loss in slot.losses] == ["a", "b"]


def test_an_empty_store_is_described(address: StoreAddress) -> None:
    report = describe_store(address.open())
    assert (report.manifest, report.slots, report.damage, report.last_epoch) == (None, [], [], None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_damage_is_reported_line_by_line(root: Path) -> None:
    store = LocalStore(root)
    refs = filled(store)
    (root / "manifest.json").write_bytes(b"{")
    os.truncate(root / "commits.log", (root / "commits.log").stat().st_size - 1)
    flip(root / refs[0].name, refs[0].offset + 40)  # a head
    flip(root / refs[1].name, refs[1].offset + refs[1].length - 20)  # a state
    damage = describe_store(store, verify=True).damage
    assert len(damage) == 5
    assert damage[0].startswith("manifest:")
    assert "commits.log: Bytes" in damage[1]
    assert "head" in damage[2]
    assert "checksum of its state" in damage[3]
    assert "committed, but missing" in damage[4]
    assert len(describe_store(store).damage) == 4  # states are not read unless asked for


@pytest.mark.parametrize("gone", ["manifest.json", "commits.log", "slots", "slots/count/0", "lock"])
def test_a_half_empty_directory_is_described(root: Path, gone: str) -> None:
    store = LocalStore(root)
    filled(store)
    path = root / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = describe_store(store, verify=True)
    assert bool(report.damage) == (gone != "lock")
    # Something else in its place is no reason to fail either.
    path.mkdir(exist_ok=True) if gone.count(".") else path.write_bytes(b"?")
    assert describe_store(store, verify=True).bytes_used >= 0


@pytest.mark.parametrize("position", range(0, 400, 23))
def test_any_damage_to_the_commit_log_is_survived(root: Path, position: int) -> None:
    store = LocalStore(root)
    filled(store)
    flip(root / "commits.log", position)
    assert describe_store(store).damage
