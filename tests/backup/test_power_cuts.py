"""What a store has said to be durable is there after a power cut at any operation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from tether.backup import LocalStore, LogEnd, LogMark
from tether.backup.files import make_folder
from tether.backup.sweeping import sweep

from .power_cuts import ForgetfulDisk, Moment, restored
from .samples import commit, header, parts, record, value_of
from .test_stores import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tether.backup import FrameRef


class Promised(NamedTuple):
    """All that a power cut must leave, as of one promise."""

    frames: dict[FrameRef, int]
    epoch: int | None = None
    """The newest that was committed."""
    end: LogEnd | None = None
    manifest: bool = False
    marked: bool = False


class Life:
    """A query's work on its store, promise by promise."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        root.mkdir()
        self.disk = ForgetfulDisk(root, patch)
        self.store = LocalStore(root / "a" / "store", compact_bytes=900)
        self.mark = LogMark(str(root / "checkpoint" / "tether"), "commits.json")
        self.promised = [Promised({})]

    def promise(self, **changes: object) -> None:
        self.promised.append(self.promised[-1]._replace(**changes))
        self.disk.promise()

    def begin(self) -> None:
        self.store.write_manifest(MANIFEST)
        self.promise(manifest=True)
        end = self.store.begin_commits(-1, every_epoch=True)
        self.promise(end=end)
        self.store.keep_mark(self.mark)
        self.promise(marked=True)

    def epoch(self, epoch: int, kind: str) -> None:
        head = header(epoch=epoch, sequence=epoch, kind=kind, attempt=f"a{epoch}")
        ref = self.store.append(head, parts(epoch))
        self.promise(frames={**self.promised[-1].frames, ref: epoch})
        end = self.store.append_commit(record(epoch, count=commit(ref, head)))
        self.promise(end=end, epoch=epoch)

    def sweep(self, committed: int) -> None:
        history = self.store.read_commits().history
        kept = dict(self.promised[-1].frames)
        for ref in history.droppable(committed):
            kept.pop(ref, None)
        self.promise(frames=kept)  # the others may go from here on
        sweep(self.store, history, committed)


def check(image: Path, promised: Promised, why: str) -> None:
    store = LocalStore(image / "a" / "store")
    log = store.read_commits()
    assert log.lost == [], why
    if promised.manifest:
        assert store.read_manifest() == MANIFEST, why
    if promised.end is not None:
        assert log.reaches(promised.end), why
    if promised.epoch is not None:
        assert log.history.last_epoch is not None, why
        assert log.history.last_epoch >= promised.epoch, why
    for ref, value in promised.frames.items():
        assert value_of(store.read(ref).parts) == value, why
    if promised.marked:
        told = LogMark(str(image / "checkpoint" / "tether"), "commits.json").read()
        assert told is not None, why
        assert told.number <= log.end.number, why  # never ahead of the log
        assert promised.end is None or told.number >= promised.end.number, why


def survive_every_cut(life: Life, scratch: Path) -> int:
    """Look at what every power cut leaves; give the number of cuts."""
    scratch.mkdir()
    seen: list[Moment] = []
    for number, moment in enumerate(life.disk.moments):
        if seen and moment._replace(after="") == seen[-1]._replace(after=""):
            continue  # nothing changed that a cut could show
        seen.append(moment)
        for names, content in itertools.product([False, True], repeat=2):
            image = scratch / f"{number}-{names:d}{content:d}"
            restored(moment, image, names=names, content=content)
            why = f"cut {number}, after {moment.after}: names {names}, content {content}"
            check(image, life.promised[moment.claims], why)
    return len(seen)


def test_what_was_promised_survives_a_cut_at_every_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        life = Life(tmp_path / "disk", patch)
        with life.store.lock("test"):
            life.begin()
            for epoch, kind in enumerate(["full", "partial", "full", "full", "partial"]):
                life.epoch(epoch, kind)
            life.sweep(3)
            life.epoch(5, "partial")
    assert len(life.promised) > 15
    assert survive_every_cut(life, tmp_path / "images") > 60


def test_a_folder_that_another_process_has_just_made_is_made_durable_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process may be slow to sync it, or die: who writes into it must not rely on that."""
    with monkeypatch.context() as patch:
        root = tmp_path / "disk" / "a" / "store"
        life = Life(tmp_path / "disk", patch)
        make_folder(root)  # by the driver, durably, before any task runs
        (root / "slots" / "count" / "0").mkdir(parents=True)  # by a task, and not synced
        ref = life.store.append(header(kind="full"), parts(7))
        life.promise(frames={ref: 7})
    survive_every_cut(life, tmp_path / "images")
