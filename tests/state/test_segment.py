from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.core.errors import ArenaError
from tether.state import segment as segment_module
from tether.state.segment import FileSegment, HeapSegment, Segment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["heap", "file"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Segment:
    return HeapSegment("i8") if request.param == "heap" else FileSegment(tmp_path / "s", "i8")


def test_growing_keeps_values_and_adds_zeros(made: Segment) -> None:
    have = 0
    for length in (1, 7, 1000, 1001, 50_000, 400_000):
        made.ensure(length)
        assert len(made.data) >= length
        assert (made.data[:have] == np.arange(have)).all()
        assert not made.data[have:length].any()
        made.data[:length] = np.arange(length)
        have = length


def test_small_steps_of_memory(tmp_path: Path) -> None:
    grown = FileSegment(tmp_path / "s", "i8")
    for length in range(10_000, 1_000_000, 10_000):
        grown.ensure(length)
    used = 8 * 990_000
    assert used < grown.allocated < used * 1.14
    assert (tmp_path / "s").stat().st_blocks * 512 == pytest.approx(grown.allocated, abs=65536)


def test_another_attachment_sees_growth_and_values(tmp_path: Path) -> None:
    first = FileSegment(tmp_path / "s", "f8", 3)
    second = FileSegment(tmp_path / "s", "f8", 3)
    early = second.data
    for length in (10, 500, 100_000):
        first.ensure(length)
        first.data[length - 1] = length
        second.refresh()
        assert second.data.shape == first.data.shape
        assert second.data[length - 1].tolist() == [length] * 3
    assert len(early) < len(second.data)


def test_old_views_stay_coherent_after_growth(tmp_path: Path) -> None:
    grown = FileSegment(tmp_path / "s", "i8")
    grown.ensure(10)
    view = grown.data[:10]
    grown.ensure(1_000_000)
    grown.data[3] = 42
    assert view[3] == 42


def test_trim_gives_memory_back_and_can_grow_again(made: Segment) -> None:
    made.ensure(500_000)
    made.data[:] = 7
    before = made.allocated
    made.trim(1000)
    assert made.allocated < before / 10
    assert (made.data[:1000] == 7).all()
    made.ensure(500_000)
    made.data[:500_000] = 8
    assert (made.data[:500_000] == 8).all()


def test_trim_is_followed_by_another_attachment(tmp_path: Path) -> None:
    first, second = FileSegment(tmp_path / "s", "i8"), FileSegment(tmp_path / "s", "i8")
    first.ensure(100_000)
    second.refresh()
    first.trim(10)
    second.refresh()
    assert len(second.data) == len(first.data)
    second.ensure(200_000)
    second.data[199_999] = 5
    first.refresh()
    assert first.data[199_999] == 5


def test_files_are_private(tmp_path: Path) -> None:
    FileSegment(tmp_path / "s", "i8")
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600


def test_a_full_file_system_is_an_error_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = FileSegment(tmp_path / "s", "i8")
    grown.ensure(1000)
    grown.data[:1000] = 3

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(segment_module, "allocate", full)
    capacity = len(grown.data)
    with pytest.raises(ArenaError, match="no room") as caught:
        grown.ensure(10_000_000)
    assert "bytes are free" in str(caught.value)
    assert len(grown.data) == capacity
    assert (grown.data[:1000] == 3).all()
    monkeypatch.undo()
    grown.ensure(100_000)


_LIMITED = """
import pathlib, resource, sys
from tether.core.errors import ArenaError
from tether.state.segment import FileSegment
grown = FileSegment(pathlib.Path(sys.argv[1]), "i8")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    for length in range(1000, 1_000_000, 1000):
        grown.ensure(length)
        grown.data[length - 1] = length
except ArenaError as error:
    assert len(grown.data) * 8 > 1 << 19, len(grown.data)
    print("refused")
"""


def test_a_real_limit_never_ends_the_process(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    ran = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "refused"), ran.stderr


def test_without_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    grown = FileSegment(tmp_path / "s", "i8")
    grown.ensure(300_000)
    grown.data[299_999] = 1
    grown.trim(10)
    grown.ensure(300_000)
    assert (tmp_path / "s").stat().st_blocks * 512 >= 300_000 * 8


def test_a_file_cut_short_at_creation_is_completed(tmp_path: Path) -> None:
    (tmp_path / "s").touch()  # its maker was killed right after open
    grown = FileSegment(tmp_path / "s", "i8")
    grown.ensure(10)
    assert not grown.data.any()


@given(st.lists(st.integers(1, 5000), max_size=20))
def test_heap_never_loses_values(lengths: list[int]) -> None:
    grown = HeapSegment("i4", 2)
    most = 0
    for length in lengths:
        grown.ensure(length)
        most = max(most, length)
        grown.data[length - 1] = length
        assert grown.data[length - 1].tolist() == [length, length]
    assert len(grown.data) >= most
