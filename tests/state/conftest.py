from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tether.state import Arena, Identity, SlotState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tether.state import Table

ME = Identity(query="q", operator="count", slot=0, slots=1, fingerprint="f")


@pytest.fixture
def identity() -> Identity:
    return ME


@pytest.fixture
def ram(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one, as arenas have it."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="tether-test-") as directory:
        yield Path(directory)


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    made = Arena.create(tmp_path / "arena", ME)
    yield made
    made.release()


@pytest.fixture(params=["heap", "arena"])
def state(request: pytest.FixtureRequest) -> SlotState:
    if request.param == "heap":
        return SlotState.heap()
    return SlotState.open(request.getfixturevalue("arena"))


@pytest.fixture
def reattach() -> Callable[[Arena], Arena]:
    """Attach again, as another process would: nothing is shared but the files."""

    def again(arena: Arena) -> Arena:
        arena.release()
        found = Arena.attach(arena.directory, ME)
        assert isinstance(found, Arena)
        return found

    return again


@pytest.fixture
def table(state: SlotState) -> Table:
    """A table with columns of all kinds, in its first epoch."""
    columns = {"n": "int64", "x": "float64", "seen": "uint8"}
    made = state.table("t", {"k": pa.int64()}, columns, starts={"n": 0})
    state.begin(0)
    return made
