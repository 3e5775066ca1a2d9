"""Epochs that touch everything, the same every time, to be cut off anywhere."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tether.state import Arena, Identity, Phase, SlotState

if TYPE_CHECKING:
    from pathlib import Path

ME = Identity(query="kill", operator="all", slot=0, slots=1, fingerprint="f")


def make(state: SlotState) -> None:
    """The states of the workload."""
    state.table("numbers", {"k": pa.int64()}, {"n": "int64", "seen": "uint8"})
    state.table(
        "words",
        {"w": pa.string(), "day": pa.date32()},
        {"x": "float64", "y": "int64"},
        divergence="l2",
        starts={"x": -1.0},
    )
    state.vector("weights", 64, divergence="max")
    state.table("members", {"m": pa.binary()}, {}, divergence="count")
    state.number("total", dtype="int64")
    state.matrix("sketch", 3, 16, dtype="int64")
    state.set("seen", {"m": pa.int64()})
    state.object("tally", Tally())


class Tally:
    """The smallest of objects."""

    count = 0

    def state_divergence(self, backup: bytes) -> float:
        return abs(self.count - int(backup))

    def backup_state(self) -> bytes:
        return b"%d" % self.count

    def recover_state(self, image: bytes) -> None:
        self.count = int(image)


def apply_epoch(state: SlotState, epoch: int, size: int) -> None:
    """All changes of an epoch, from ``begin`` to ``commit``.

    Every few epochs it backs up a part or all of the state, or clears a table. ``size`` is the
    number of items in a batch.
    """
    draw = random.Random(epoch)
    state.begin(epoch)
    tables: Any = state
    span = 40 + epoch * size // 2  # so that there are new keys in every epoch
    for _ in range(2):
        keys = [draw.randrange(span) for _ in range(size)]
        tables["numbers"].add([pa.array(keys, pa.int64())], n=draw.randrange(1, 9))
        tables["numbers"].put([pa.array(keys[:5], pa.int64())], seen=epoch % 256)
        some = [None if key % 17 == 0 else f"word-{key}" * (key % 3) for key in keys]
        days = pa.array([key % 3 for key in keys], pa.int32()).cast(pa.date32())
        tables["words"].maximum([pa.array(some), days], x=[key / 8 for key in keys])
        tables["words"].add([pa.array(some), days], y=1)
        tables["weights"].add([key % 64 for key in keys], 0.5)
        tables["members"].put([pa.array([b"%d" % key for key in keys])])
        tables["total"].add(keys)
        tables["sketch"].add([[0], [1], [2]], [[key % 16 for key in keys]], 1)
        tables["seen"].add(pa.array(keys, pa.int64()))
        tables["seen"].discard(pa.array(keys[:3], pa.int64()))
        tables["tally"].value.count += len(keys)
        if epoch % 3 == 1 and state.pending is None:
            state.export(state.divergence() / 2)
        if epoch % 5 == 2 and state.pending is None:
            state.begin_export(state.divergence() / 2)
    if epoch % 5 in (3, 4) and state.pending is not None:
        state.pending.settle() if epoch % 2 else state.pending.abandon()
    if epoch % 7 == 5 and state.pending is None:
        state.export_full()
    if epoch % 5 == 4:
        tables["words"].clear()
        tables["words"].add([pa.array(["new"]), pa.array([0], pa.date32())], y=1)
        tables["weights"].clear()
        tables["seen"].clear()
    state.blob = b"epoch %d" % epoch
    state.commit(epoch)


def snapshot(state: SlotState) -> dict[str, Any]:
    """Everything that can be seen of a state."""
    tables: Any = state
    content = {
        name: [row for batch in tables[name].batches() for row in batch.to_pylist()]
        for name in ("numbers", "words", "members", "seen")
    }
    return {
        **content,
        "weights": tables["weights"].values.tolist(),
        "sketch": tables["sketch"].values.tolist(),
        "total": tables["total"].value,
        "tally": tables["tally"].value.count,
        "pending": state.pending and state.pending.token,
        "divergence": {name: tables[name].divergence(exact=True) for name in state.specs()},
        "dirty": {name: tables[name].dirty_entries() for name in state.specs()},
        "version": state.version,
        "blob": state.blob,
    }


def durable_side(state: SlotState) -> dict[str, Any]:
    """What differs from the backups, by backing it all up, in an epoch that is then undone."""
    state.begin(state.version + 1)
    if state.pending is not None:
        state.pending.settle()
    exports = state.export(0.0)
    rows = {
        name: (e.full, [row for batch in e.batches for row in batch.to_pylist()])
        for name, e in exports.items()
    }
    state.rollback()
    return rows


def reference(epochs: int, size: int) -> SlotState:
    """The same epochs on the heap, where nothing fails."""
    state = SlotState.heap()
    make(state)
    for epoch in range(epochs):
        apply_epoch(state, epoch, size)
    return state


def open_state(directory: Path) -> tuple[Arena, SlotState]:
    """Attach as a new process would, or create; roll back what was cut off."""
    found = Arena.attach(directory, ME)
    arena = found if isinstance(found, Arena) else Arena.create(directory, ME)
    state = SlotState.open(arena)
    if state.phase is Phase.APPLYING:
        state.rollback()
    make(state)
    return arena, state
