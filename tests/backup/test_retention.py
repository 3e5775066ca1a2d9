"""Which frames are kept: those that recovery may ask for."""

from __future__ import annotations

from tether.backup import CommitRecord, FrameRef, SlotCommit
from tether.backup.retention import needed


def frame(name: str) -> FrameRef:
    return FrameRef(name=name, offset=0, length=1)


def test_logged_rows_go_once_a_committed_backup_holds_the_whole_state() -> None:
    def kept(*, exact: bool, committed: int) -> set[str]:
        records = [
            CommitRecord(
                epoch=epoch,
                run="r",
                slots={
                    "op/0": SlotCommit(
                        epoch=epoch,
                        divergence_after=0.0,
                        frame=frame("state") if epoch == 1 else None,
                        kind="full" if epoch == 1 else None,
                        exact=exact,
                    )
                },
                items={"op/0": frame(f"rows-{epoch}")},
            )
            for epoch in range(3)
        ]
        return {one.name for one in needed(records, committed)}

    assert kept(exact=True, committed=2) == {"state", "rows-2"}
    assert kept(exact=True, committed=0) == {"state", "rows-0", "rows-1", "rows-2"}
    assert kept(exact=False, committed=2) == {"state", "rows-0", "rows-1", "rows-2"}
