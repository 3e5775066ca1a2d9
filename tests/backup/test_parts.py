"""Complete snapshots and logged rows: what is found again, and what may be dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tether.backup import CommitHistory, CommitRecord, FrameRef, LocalStore, SlotCommit
from tether.backup.parts import read_part, read_rows
from tether.backup.sweeping import sweep
from tether.core.errors import BackupUnreadableError

from .samples import commit, flip, header, parts, record, value_of

if TYPE_CHECKING:
    from pathlib import Path


def ref(name: str) -> FrameRef:
    return FrameRef(f"slots/count/0/{name}.frame", 0, 1)


def part(epoch: int, kind: str = "full") -> SlotCommit:
    return SlotCommit(
        epoch=epoch,
        frame=ref(f"{kind}{epoch}"),
        kind=kind,  # type: ignore[arg-type]
        divergence_after=0.0,
        exact=True,
    )


def complete(number: int, epoch: int, kind: str = "full") -> CommitRecord:
    return CommitRecord(
        epoch=epoch,
        run="r",
        slots={"count/0": part(epoch, kind)},
        complete=number,
        items={"count/0": ref(f"items{epoch}")},
    )


def test_a_late_declaration_voids_nothing_and_takes_its_place_among_epochs() -> None:
    history = CommitHistory([record(5, other=part(5)), complete(1, 3)])
    found = history.complete_snapshot(before_epoch=6)
    assert found is not None
    assert (found.number, found.epoch) == (1, 3)
    assert history.last_epoch == 5
    assert not history.void_frames()
    assert [c.epoch for c in history.chain("count", 0, before_epoch=4)] == [3]
    assert history.complete_snapshot(before_epoch=3) is None


def test_going_back_behind_a_snapshot_voids_it() -> None:
    history = CommitHistory(
        [complete(1, 3), complete(2, 7), CommitRecord(epoch=5, run="r", slots={})]
    )
    found = history.complete_snapshot(before_epoch=9)
    assert found is not None
    assert found.number == 1
    assert history.void_frames() == {ref("full7"), ref("items7")}


def test_a_newer_complete_snapshot_lets_the_older_one_go() -> None:
    history = CommitHistory([complete(n, 10 * n) for n in range(1, 5)])
    assert ref("items30") in history.droppable(committed_epoch=50)
    assert ref("items40") not in history.droppable(committed_epoch=50)
    history.prune(committed_epoch=50)
    again = CommitHistory.from_snapshot(history.snapshot(committed_epoch=50))
    for one in (history, again):
        found = one.complete_snapshot(before_epoch=99)
        assert found is not None
        assert (found.number, found.items) == (4, {"count/0": ref("items40")})
        assert one.complete_snapshot(before_epoch=40) is None
        assert ref("full10") not in one.live_frames()


def test_nothing_that_the_snapshot_rests_on_is_dropped_for_newer_frames() -> None:
    """Full frames that came later, of flushes say, do not make it the third newest generation."""
    history = CommitHistory([complete(1, 3), complete(2, 4, "partial")])
    for epoch in (5, 6, 7):
        history.apply(record(epoch, count=part(epoch)))
    needed = {ref("full3"), ref("partial4"), ref("items4")}
    assert not needed & set(history.droppable(committed_epoch=7))
    history.prune(committed_epoch=7)
    assert needed <= history.live_frames()


def test_a_gap_counts_for_every_record_that_stood_before_it() -> None:
    history = CommitHistory([record(5, count=part(5))])
    history.mark_gap("lost")
    history.apply(complete(1, 3))
    again = CommitHistory.from_snapshot(history.snapshot(committed_epoch=0))
    assert again.lost_since(part(5)) == ["lost"]


def test_logged_rows_are_needed_until_a_backup_holds_them() -> None:
    history = CommitHistory()
    for epoch in range(6):
        made = record(epoch, **({"count": part(epoch)} if epoch == 3 else {}))
        history.apply(msgspec.structs.replace(made, items={"count/0": ref(f"rows{epoch}")}))
    assert [epoch for epoch, _ in history.logged_rows("count", 0, 3, 6)] == [4, 5]
    dropped = {frame for frame in history.droppable(committed_epoch=5) if "rows" in frame.name}
    assert dropped == {ref(f"rows{epoch}") for epoch in range(4)}
    # Until Spark has committed the epoch of the backup, it may have to be run again.
    assert ref("rows3") not in history.droppable(committed_epoch=2)


def written(store: LocalStore) -> CommitHistory:
    """Snapshot 0 of epoch 2: a whole image; snapshot 1 of epoch 4 builds on it; rows of epoch 5."""
    for number, epoch, kind in ((0, 2, "full"), (1, 4, "partial")):
        head = header(epoch=epoch, sequence=epoch, kind=kind)
        state = store.append(head, parts(epoch))
        flow = store.append(
            header(epoch=epoch, sequence=epoch + 10, kind="items"), parts(70 + epoch)
        )
        made = record(epoch, count=commit(state, head))
        made = msgspec.structs.replace(made, complete=number, items={"count/0": flow})
        store.append_commit(made)
    rows = store.append(header(epoch=5, sequence=15, kind="items"), parts(75))
    store.append_commit(CommitRecord(epoch=5, run="r", slots={}, items={"count/0": rows}))
    return store.read_commits().history


def test_parts_feedback_and_rows_are_read_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.lock("test"):
        history = written(store)
        sweep(store, history, 5, orphans=True)
        history = store.read_commits().history
        found = history.complete_snapshot(before_epoch=6)
        assert found is not None
        restored = read_part(store, history, "count", 0, found)
        assert [value_of(frame.parts) for frame in restored.frames] == [2, 4]
        assert restored.feedback is not None
        assert value_of(restored.feedback.parts) == 74
        rows = read_rows(store, history, "count", 0, after_epoch=4, before_epoch=6)
        assert [value_of(frame.parts) for frame in rows] == [75]


def test_a_damaged_part_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.lock("test"):
        history = written(store)
        found = history.complete_snapshot(before_epoch=6)
        assert found is not None
        newest = history.chain("count", 0, before_epoch=5)[-1].frame
        assert newest is not None
        flip(tmp_path / newest.name, newest.offset + newest.length // 2)
        with pytest.raises(BackupUnreadableError, match="Snapshot 1 cannot be restored"):
            read_part(store, history, "count", 0, found)
