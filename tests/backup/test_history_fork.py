"""A history that is continued apart from the one that it was forked from."""

from __future__ import annotations

from tether.backup.commits import CommitRecord, SlotCommit
from tether.backup.frames import FrameRef
from tether.backup.history import CommitHistory
from tether.core.losses import LossRecord


def record(epoch, name, **more):
    frame = FrameRef(f"slots/count/0/{name}.frame", 0, 9)
    commit = SlotCommit(epoch=epoch, frame=frame, kind="full", divergence_after=0.0, **more)
    return CommitRecord(epoch=epoch, run="r", slots={"count/0": commit})


def told(history):
    return (
        history.last_epoch,
        history.chain("count", 0, before_epoch=99),
        history.losses("count", 0),
        history.void_frames(),
        history.gaps,
        history.every_epoch_from,
    )


def test_neither_of_two_histories_sees_what_the_other_is_told():
    history = CommitHistory([record(0, "a"), record(1, "b"), record(1, "c")])
    history.mark_gap("one record is missing")
    fork = history.fork()
    before = told(history)
    assert told(fork) == before
    loss = LossRecord(epoch=2, lost="x", at_most=3.0, theta=3.0, failures=0, under="")
    fork.apply(record(2, "d", failures=1, losses=(loss,), losses_in_all=1))
    fork.mark_gap("another one is missing")
    fork.set_every_epoch(True, 2)
    assert told(history) == before
    assert fork.losses("count", 0) == [loss]
    changed = told(fork)
    history.apply(record(1, "e"))
    history.prune(1)
    assert told(fork) == changed
