from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tether.core.errors import BadValueError
from tether.state import SlotState, Table

TOP = 2**63 - 1


def seen(table: Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in table.batches() for row in batch.to_pylist()]


def test_ways_to_give_keys_and_values(table: Table) -> None:
    keys = pa.array([1, 2], pa.int64())
    batch = pa.RecordBatch.from_pydict({"other": ["a", "b"], "k": keys})
    for given in (batch, batch.to_struct_array(), pa.Table.from_batches([batch]), [keys], [[1, 2]]):
        table.add(given, n=1)
    table.add([np.array([1, 2])], n=np.array([10, 20], "i4"), x=pa.array([0.5, 1.5]))
    table.add([keys], n=pa.chunked_array([[100], [200]]), x=True)
    table.put([keys], seen=pa.array([True, False]))
    assert seen(table) == [(1, 115, 1.5, 1), (2, 225, 2.5, 0)]


def test_repeated_keys(table: Table) -> None:
    rows = table.add([[5, 6, 5, 5]], n=[1, 2, 3, 4])
    assert rows.tolist() == [0, 1, 0, 0]
    table.put([[5, 5, 6]], x=[1.0, 2.0, 9.0], seen=[1, 2, 3])
    table.maximum([[7, 7, 5, 5]], n=[-3, -2, 100, 7])
    table.minimum([[8, 8, 6, 6]], n=[3, 2, -100, 7])
    assert seen(table) == [(5, 100, 2.0, 2), (6, -100, 9.0, 3), (7, 0, 0.0, 0), (8, 0, 0.0, 0)]


def test_unique_gives_the_same_as_not(table: Table) -> None:
    table.add([[3, 1, 2]], unique=True, n=[1, 2, 3])
    table.add([[2, 9, 3]], unique=True, n=[10, 20, 30])
    assert [(row[0], row[1]) for row in seen(table)] == [(3, 31), (1, 2), (2, 13), (9, 20)]


def test_nothing_in_nothing_out(table: Table) -> None:
    assert table.add([[]], n=[]).tolist() == []
    assert table.add([[]], n=1).tolist() == []
    assert table.get([[]]).found.tolist() == []
    assert table.get([[1]]).found.tolist() == [False]
    assert list(table.batches()) == []
    assert table.rows_to_batch(np.zeros(0, int)).num_rows == 0


def test_lookup(table: Table) -> None:
    table.add([[1, 2]], n=[10, 20], x=[0.5, 1.5])
    found = table.get([[2, 7]])
    assert found.rows.tolist() == [1, -1]
    assert found.columns["x"].tolist() == [1.5, 0.0]
    assert found.to_batch().to_pydict() == {"n": [20, None], "x": [1.5, None], "seen": [0, None]}
    assert len(table) == 2


def test_reading_a_few_rows_copies_only_those(table: Table) -> None:
    every = np.arange(200_000)
    table.add([every], unique=True, n=every, x=1.0)
    tracemalloc.start()
    try:
        assert table.get([[7, 199_999]]).columns["n"].tolist() == [7, 199_999]
        assert table.rows_to_batch(np.array([3, 5]))["n"].to_pylist() == [3, 5]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000  # a column of all rows is 1.6 MB


def test_values_are_a_read_only_view(table: Table) -> None:
    table.add([[1, 2]], n=[10, 20])
    view = table.values("n")
    assert view.tolist() == [10, 20]
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": [1, None]}, "nulls"),
        ({"x": [1.0, math.nan]}, "NaN"),
        ({"n": [1.5, 2.5]}, "float64"),
        ({"n": ["a", "b"]}, "cannot be used"),
        ({"n": [1, 2, 3]}, "shape"),
        ({"n": np.array([1, 2**64 - 1], "u8")}, "largest"),
        ({"m": 1}, "no column 'm'"),
    ],
)
def test_bad_values_change_nothing(
    state: SlotState, table: Table, columns: dict[str, Any], message: str
) -> None:
    table.add([[1]], n=5)
    before = seen(table), state.divergence()
    given = {k: pa.array(v) if isinstance(v, list) else v for k, v in columns.items()}
    with pytest.raises(BadValueError, match=message):
        table.add([[1, 2]], **given)
    assert (seen(table), state.divergence()) == before


def test_adding_to_a_flag_raises_it(table: Table) -> None:
    table.add([[1, 2, 1]], n=1, seen=[0, 0, 1])
    table.add([[1, 2]], n=1, seen=[False, False])
    assert seen(table) == [(1, 3, 0.0, 1), (2, 2, 0.0, 0)]


def test_flags_must_fit(table: Table) -> None:
    with pytest.raises(BadValueError, match="8 bits"):
        table.put([[1]], seen=256)


@pytest.mark.parametrize(
    "keys", [[], [[1], [2]], [[1, 2], [3]], pa.RecordBatch.from_pydict({"a": [1]})]
)
def test_bad_keys(table: Table, keys: Any) -> None:
    with pytest.raises(BadValueError, match="keys for table"):
        table.add(keys, n=1)


@pytest.mark.parametrize(
    ("first", "keys", "values"),
    [
        (TOP, [1], [1]),
        (-TOP, [1], [-2]),
        (0, [1, 1], [TOP, 1]),
        (0, [1, 1, 1], [TOP, TOP, TOP]),
        (5, [2, 1], [1, TOP]),
        (-5, [1, 2, 1], [-TOP, 3, -TOP]),
    ],
)
def test_integers_never_wrap(
    state: SlotState, table: Table, first: int, keys: list[int], values: list[int]
) -> None:
    table.add([[1]], n=[first])
    before = seen(table), state.divergence()
    with pytest.raises(BadValueError, match="overflow"):
        table.add([keys], n=values)
    assert (seen(table), state.divergence()) == before
    table.add([[3]], n=1)  # and the table goes on
    assert len(table) == 2


def test_sums_that_fit_are_right_however_large(table: Table) -> None:
    table.add([[1, 1, 1, 2, 2]], n=[TOP, -TOP, 5, -TOP, -1])
    assert [row[1] for row in seen(table)] == [5, -TOP - 1]


def test_infinities_may_not_cancel(table: Table) -> None:
    table.add([[1]], x=math.inf)
    with pytest.raises(BadValueError, match="NaN"):
        table.add([[1]], x=-math.inf)
    assert seen(table)[0][2] == math.inf


def test_no_change_outside_of_an_epoch(state: SlotState, table: Table) -> None:
    state.commit(0)
    for change in (
        lambda: table.add([[1]], n=1),
        lambda: table.export(0.0),
        table.export_full,
        table.clear,
    ):
        with pytest.raises(BadValueError, match="phase"):
            change()


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ({"k": pa.int64()}, {"n": "int32"}),
        ({"k": pa.int64()}, {"k": "int64"}),
        ({"k": pa.int64()}, {"unique": "int64"}),
        (pa.schema([("k", pa.int64()), ("k", pa.int64())]), {"n": "int64"}),
    ],
)
def test_bad_descriptions(keys: Any, values: dict[str, str]) -> None:
    with pytest.raises(BadValueError):
        SlotState.heap().table("t", keys, values)


def test_clearing_gives_memory_back_in_the_next_epoch(state: SlotState, table: Table) -> None:
    table.add([pa.array(np.arange(200_000))], n=1)
    state.commit(0)
    full = state.resident_bytes()
    state.begin(1)
    table.clear()
    assert len(table) == 0
    table.add([[5]], n=1)
    state.commit(1)
    state.begin(2)
    assert state.resident_bytes() < full / 4
    assert seen(table) == [(5, 1, 0.0, 0)]
    state.commit(2)


def test_clear_and_rollback_and_clear_again(state: SlotState, table: Table) -> None:
    table.add([[1, None]], n=1)
    state.commit(0)
    for _ in range(3):
        state.begin(1)
        table.clear()
        table.add([[None, 7, 8]], n=1)
        table.clear()
        table.add([[9]], n=1)
        assert [row[0] for row in seen(table)] == [9]
        state.rollback()
        assert [row[0] for row in seen(table)] == [1, None]


def test_one_large_epoch_does_not_keep_its_journal(state: SlotState) -> None:
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"})
    keys = pa.array(np.arange(600_000))
    state.begin(0)
    table.add([keys], unique=True, n=1)
    state.commit(0)
    state.begin(1)
    table.add([keys], unique=True, n=1)
    table.export_full()
    state.commit(1)
    large = state.resident_bytes()
    for epoch in (2, 3):  # a second small one shows that the large one was an exception
        state.begin(epoch)
        table.add([keys.slice(0, 5)], n=1)
        state.commit(epoch)
    assert state.resident_bytes() < large - 600_000 * 12
    assert table.values("n")[:6].tolist() == [4] * 5 + [2]


def test_count_is_of_keys_that_only_one_side_has(state: SlotState) -> None:
    """A table of the same size may share nothing with its backup."""
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"}, divergence="count")
    state.begin(0)
    table.add([np.arange(100)], n=1)
    table.export(0.0)
    table.clear()
    table.add([np.arange(1000, 1105)], n=1)
    assert table.divergence() == 205.0
    export = table.export(5.0)
    assert export.full
    assert table.divergence() == 0.0
