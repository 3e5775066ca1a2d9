"""Small frames and commits for the tests of this package."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tether.backup import CommitRecord, FrameHeader, FrameRef, SlotCommit, slot_key

if TYPE_CHECKING:
    from pathlib import Path

    from tether.backup import BackupStore, CommitLog

HEADER = FrameHeader(
    query="q",
    operator="count",
    slot=0,
    epoch=1,
    sequence=0,
    failures=0,
    kind="full",
    cause="theta",
    attempt="attempt",
    lineage="line",
    divergence_before=3.0,
    divergence_after=0.5,
    carried=2.5,
    entries=2,
    written_at=1.7e9,
)


def header(**changes: Any) -> FrameHeader:
    """A valid header, of an attempt of its own unless told otherwise."""
    return msgspec.structs.replace(HEADER, **{"attempt": uuid.uuid4().hex, **changes})


def parts(value: int = 0, rows: int = 3) -> dict[str, list[pa.RecordBatch]]:
    """A table part and a number part; ``value`` is found again by ``value_of``."""
    table = pa.record_batch(
        {
            "key": pa.array([f"k{i}" for i in range(rows)]),
            "v": pa.array(np.arange(rows, dtype="f8") + value),
        }
    )
    number = pa.record_batch({"n": pa.array([value])})
    return {"table": [table, table.slice(1)], "number": [number]}


def value_of(found: dict[str, list[pa.RecordBatch]]) -> int:
    value: int = found["number"][0]["n"][0].as_py()
    return value


def commit(ref: FrameRef | None, head: FrameHeader) -> SlotCommit:
    """What the driver would commit of a frame."""
    return SlotCommit(
        epoch=head.epoch,
        frame=ref,
        kind=head.kind if ref else None,
        carried=head.carried if ref else 0.0,
        divergence_after=head.divergence_after,
        failures=head.failures,
        lineage=head.lineage,
        policy_state=b"state",
    )


def record(epoch: int, **slots: SlotCommit) -> CommitRecord:
    """A commit record of slot 0 of each named operator."""
    return CommitRecord(
        epoch=epoch, run="run", slots={slot_key(name, 0): made for name, made in slots.items()}
    )


def run_epochs(store: BackupStore, kinds: str, *, first: int = 0) -> list[FrameRef]:
    """Write and commit a frame an epoch: ``F`` full, ``p`` partial. The value is the epoch."""
    refs = []
    for epoch, letter in enumerate(kinds, first):
        head = header(
            epoch=epoch,
            sequence=epoch,
            kind="full" if letter == "F" else "partial",
            carried=float(10**epoch),
        )
        refs.append(store.append(head, parts(epoch)))
        store.append_commit(record(epoch, count=commit(refs[-1], head)))
    return refs


def epochs_in(log: CommitLog) -> list[int]:
    """The epochs whose frames restore slot 0 of ``count``."""
    return [made.epoch for made in log.history.chain("count", 0, 1 << 60)]


def flip(path: Path, position: int) -> None:
    """Damage one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)
