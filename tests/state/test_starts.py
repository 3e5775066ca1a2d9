"""What a lost key starts again from: declared, and counted in the divergence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tether.core.errors import BadValueError
from tether.state import SlotState, Table
from tether.testing.oracle import recovered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.state import Arena

KEY = {"k": pa.int64()}
LARGEST = 2**63 - 1


def lowest(state: SlotState, *, divergence: str = "l1") -> Table:
    return state.table(
        "low", KEY, {"low": "float64"}, divergence=divergence, starts={"low": math.inf}
    )


def after_a_loss(declare: Callable[[SlotState], Table], frames: list[Any]) -> Table:
    """The table as it comes back, ready for changes."""
    state = recovered(declare, frames)
    state.begin(1)
    return declare(state)


@pytest.mark.parametrize("divergence", ["l1", "l2", "max"])
def test_a_new_key_of_a_minimum_is_in_the_first_backup(divergence: str, state: SlotState) -> None:
    """Without it, 0.5 would have counted as 0.5 from the backup, and come back as 1000."""

    def declare(some: SlotState) -> Table:
        return lowest(some, divergence=divergence)

    table = declare(state)
    state.begin(0)
    table.minimum([[1]], low=[0.5])
    assert table.divergence() == math.inf
    export = table.export(10.0)
    assert export.entries == 1
    assert table.divergence() == 0.0
    table.minimum([[1]], low=[-3.0])
    told = table.divergence()
    assert told == pytest.approx(3.5)
    survivor = after_a_loss(declare, [{"low": export.batches}])
    for some in (table, survivor):
        some.minimum([[1]], low=[1000.0])
    assert abs(table.values("low")[0] - survivor.values("low")[0]) <= told


def test_known_keys_of_a_minimum_drift_as_any_number(state: SlotState) -> None:
    table = lowest(state)
    state.begin(0)
    table.minimum([np.arange(100)], low=np.full(100, 50.0))
    table.export(5.0)
    table.minimum([np.arange(100)], low=np.full(100, 49.99))
    assert table.divergence(exact=True) == pytest.approx(1.0)
    table.minimum([[100, 3]], low=[7.0, 30.0])
    export = table.export(5.0)
    assert sorted(export.batches[0].column("k").to_pylist()) == [3, 100]


def test_a_maximum_below_zero_is_not_lost(state: SlotState) -> None:
    def declare(some: SlotState) -> Table:
        return some.table("t", KEY, {"high": "float64"}, starts={"high": -math.inf})

    table = declare(state)
    state.begin(0)
    table.maximum([[1, 2]], high=[-5.0, -1.0])
    assert table.values("high").tolist() == [-5.0, -1.0]
    part = table.export(4.0)
    survivor = after_a_loss(declare, [{"t": part.batches}])
    for some in (table, survivor):
        some.maximum([[1, 2]], high=[-1000.0, -1000.0])
    assert survivor.values("high").tolist() == table.values("high").tolist()


def test_a_finite_start_costs_what_the_value_is_away_from_it(state: SlotState) -> None:
    table = state.table("t", KEY, {"high": "int64", "low": "int64"}, starts={"high": 0, "low": 90})
    state.begin(0)
    table.maximum([[1]], high=[7])
    assert table.divergence() == 7.0  # ``low`` is where it starts, and so is that of a lost key
    table.minimum([[1]], low=[88])
    assert table.divergence() == 9.0
    table.maximum([[2]], high=[-4])
    assert table.get([[2, 3]]).columns["high"].tolist() == [0, 0]
    assert table.get([[2, 3]]).columns["low"].tolist() == [90, 90]
    assert table.divergence() == 9.0


def test_whole_numbers_start_from_the_end_of_their_range(state: SlotState) -> None:
    starts = {"low": math.inf, "high": -math.inf}
    table = state.table("t", KEY, {"low": "int64", "high": "int64"}, starts=starts)
    state.begin(0)
    table.minimum([[1]], low=[LARGEST - 3])
    assert table.divergence(exact=True) == 3.0
    assert table.get([[1]]).columns["high"].tolist() == [-LARGEST - 1]
    table.maximum([[1, 2]], high=[-7, LARGEST])
    assert table.divergence(exact=True) >= 3 + (LARGEST - 6) + (2 * LARGEST + 1)
    assert table.export(2.0**63).entries == 2
    table.minimum([[1]], low=[12])
    table.add([[1]], high=[5])
    assert table.divergence(exact=True) == float(LARGEST - 3 - 12 + 5)


def test_a_cleared_minimum_is_backed_up_at_once(state: SlotState) -> None:
    """Else a key that was cleared would come back, with its old minimum."""
    table = lowest(state)
    state.begin(0)
    table.minimum([[1]], low=[0.5])
    table.export(0.0)
    table.clear()
    assert table.divergence() == math.inf
    export = table.export(1e9)
    assert export.full
    assert table.divergence() == 0.0


@pytest.mark.parametrize("operation", ["minimum", "maximum"])
def test_without_a_start_an_extreme_is_refused(operation: str, state: SlotState) -> None:
    table: Any = state.table("t", KEY, {"x": "float64", "f": "uint8"})
    state.begin(0)
    with pytest.raises(BadValueError, match="no start to take a") as refused:
        getattr(table, operation)([[1]], x=[5.0])
    assert "starts={'x': " + ("-" if operation == "maximum" else "") + "math.inf}" in str(
        refused.value
    )
    assert len(table) == 0
    table.maximum([[1]], f=[3])  # no flag is below 0
    with pytest.raises(BadValueError, match="no column"):
        table.maximum([[1]], y=[5.0])
    with pytest.raises(BadValueError, match="no start"):
        table.minimum([[1]], f=[3])


@pytest.mark.parametrize(
    ("starts", "why"),
    [
        ({"other": 1}, "no column"),
        ({"n": 0.5}, "cannot start"),
        ({"n": 2.0**64}, "cannot start"),
        ({"x": math.nan}, "cannot start"),
        ({"f": -1}, "cannot start"),
        ({"f": 256}, "cannot start"),
    ],
)
def test_starts_that_cannot_be(starts: dict[str, float], why: str) -> None:
    with pytest.raises(BadValueError, match=why):
        SlotState.heap().table(
            "t", KEY, {"n": "int64", "x": "float64", "f": "uint8"}, starts=starts
        )


def test_starts_belong_to_the_program() -> None:
    """JSON knows no infinity, and arenas and manifests compare descriptions in JSON."""
    described = []
    for start in (None, {"low": math.inf}, {"low": -math.inf}, {"low": 0.0}):
        state = SlotState.heap()
        state.table("t", KEY, {"low": "float64"}, starts=start)
        described.append(msgspec.json.encode(state.specs()))
        for other in ({"low": 3.0}, None if start else {"low": 3.0}):
            with pytest.raises(BadValueError, match="starts"):
                state.table("t", KEY, {"low": "float64"}, starts=other)
    assert len(set(described)) == 4
    plain = SlotState.heap().table("t", KEY, {"low": "float64"}).spec
    assert "starts" not in plain  # tables that declare none are described as ever


def test_rows_that_were_rolled_back_start_again(state: SlotState) -> None:
    table = state.table(
        "t", KEY, {"low": "float64", "f": "uint8"}, starts={"low": math.inf, "f": 9}
    )
    state.begin(0)
    table.minimum([[1, 2]], low=[4.0, 5.0], f=[1, 10])
    state.rollback()
    state.begin(0)
    table.put([[7]])
    assert table.get([[7]]).columns["low"].tolist() == [math.inf]
    assert table.get([[7]]).columns["f"].tolist() == [9]
    assert table.divergence() == 0.0  # as far as numbers go, the key might as well not be there
    table.minimum([[7]], low=[4.5])
    assert table.values("low").tolist() == [4.5]


def test_another_process_knows_the_starts(arena: Arena, reattach: Any) -> None:
    state = SlotState.open(arena)
    lowest(state)
    again = SlotState.open(reattach(arena))
    table = again["low"]
    assert isinstance(table, Table)
    again.begin(0)
    table.minimum([[1]], low=[8.0])
    assert table.values("low").tolist() == [8.0]
    assert table.divergence() == math.inf


def test_untracked_tables_start_alike() -> None:
    state = SlotState.heap(track=False)
    table = lowest(state)
    state.begin(0)
    table.minimum([[1, 2]], low=[8.0, 3.0])
    assert table.values("low").tolist() == [8.0, 3.0]
    assert table.get([[3]]).columns["low"].tolist() == [math.inf]
    assert state.divergence() == 0.0
