"""Parcels in the driver's memory: other processes read them, and they go with their driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tether.core.errors import TetherError
from tether.sources.folding.fold import CannotFoldError
from tether.spark.folding.held import Holder, can_hold

pytestmark = pytest.mark.skipif(not can_hold(), reason="no files in memory here")


def test_another_process_reads_what_is_held_and_not_when_the_holder_is_gone() -> None:
    holder = Holder()
    table = pa.table({"n": range(100_000)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    parcel = sink.getvalue().to_pybytes()
    (first,), (second, third) = holder.hold({0: [parcel], 3: [b"odd", parcel]}).values()
    assert second.taken().to_pybytes() == b"odd"
    assert (first.start % 64, third.start % 64) == (0, 0)
    program = (
        "import sys, pyarrow as pa\n"
        "from tether.spark.folding.held import Held\n"
        "held = Held(sys.argv[1], bytes.fromhex(sys.argv[2]), *map(int, sys.argv[3:]))\n"
        "print(pa.ipc.open_stream(held.taken()).read_all()['n'].to_pylist()[-1])\n"
    )
    told = [third.path, third.token.hex(), str(third.start), str(third.length)]
    done = subprocess.run(
        [sys.executable, "-c", program, *told], capture_output=True, text=True, check=True
    )
    assert done.stdout == "99999\n"
    del holder
    with pytest.raises(TetherError, match="cannot be read"):
        third.taken()


def test_the_newest_two_epochs_are_held_and_no_file_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    holder = Holder()
    held = [holder.hold({0: [bytes([number]) * 10]})[0][0] for number in range(5)]
    assert [one.taken().to_pybytes() for one in held[-2:]] == [b"\x03" * 10, b"\x04" * 10]
    for gone in held[:-2]:  # the name of its file is another one's now
        with pytest.raises(TetherError, match="cannot be read"):
            gone.taken()
    read = held[-1].taken()
    del holder
    assert read.to_pybytes() == b"\x04" * 10  # whoever has mapped it keeps it
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("call", ["memfd_create", "pwrite"])
def test_without_memory_the_epoch_is_left_to_spark(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(*_: object) -> int:
        raise OSError(12, "Cannot allocate memory")

    holder = Holder()
    monkeypatch.setattr(os, call, fails)
    with pytest.raises(CannotFoldError, match="Cannot allocate memory"):
        holder.hold({0: [b"rows"]})
    monkeypatch.undo()
    assert holder.hold({0: [b"rows"]})[0][0].taken().to_pybytes() == b"rows"
