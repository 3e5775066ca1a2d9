"""What a table exports: the worst entries and no more, in batches, cleared ones too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.state import SlotState, Table


def test_exports_take_the_worst_and_no_more(state: SlotState, table: Table) -> None:
    table.add([[1, 2, 3, 4]], n=[5, 100, -40, 1])
    export = table.export(10.0)
    assert [row["k"] for batch in export.batches for row in batch.to_pylist()] == [2, 3]
    assert (export.entries, export.full) == (2, False)
    assert (export.carried, export.divergence_after) == (140.0, 6.0)
    assert table.divergence() == 6.0
    assert table.export(6.0).batches == []
    rest = table.export(0.0)
    assert [row["k"] for batch in rest.batches for row in batch.to_pylist()] == [1, 4]
    assert rest.divergence_after == 0.0
    assert table.export(0.0).batches == []


def test_an_exact_export_holds_new_keys_with_zero_values(table: Table) -> None:
    table.add([[1, 2]], n=[1, 0])
    assert table.divergence() == 1.0
    partial = table.export(0.5)
    assert [row["k"] for batch in partial.batches for row in batch.to_pylist()] == [1]
    exact = table.export(0.0)
    assert [row["k"] for batch in exact.batches for row in batch.to_pylist()] == [2]


def test_what_went_back_is_not_written(state: SlotState) -> None:
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"})
    state.begin(0)
    table.add([[1, 2, 3]], n=1)
    assert table.export(0.0).full
    table.add([[1, 2]], n=7)
    table.add([[1]], n=-7)
    export = table.export(0.0)
    assert [row["k"] for batch in export.batches for row in batch.to_pylist()] == [2]
    assert table.dirty_entries() == 0


def test_flags_travel_with_exact_exports(table: Table) -> None:
    table.add([[1, 2]], n=1)
    table.export_full()
    table.put([[2]], seen=9)
    export = table.export(0.0)
    assert [row["seen"] for batch in export.batches for row in batch.to_pylist()] == [9]


def test_count_exports_just_enough_keys(state: SlotState) -> None:
    table = state.table("t", {"k": pa.int64()}, {}, divergence="count")
    state.begin(0)
    table.put([list(range(10))])
    assert table.divergence() == 10.0
    export = table.export(3.5)
    assert (export.entries, export.divergence_after) == (7, 3.0)


def test_an_export_is_a_copy(table: Table) -> None:
    table.add([[1, 2]], n=[1, 2])
    whole, part = table.export_full(), None
    table.add([[1, 2]], n=[10, 20])
    part = table.export(11.0)
    table.put([[1, 2]], n=0)
    assert [row["n"] for row in whole.batches[0].to_pylist()] == [1, 2]
    assert [row["n"] for row in part.batches[0].to_pylist()] == [22]
    assert whole.nbytes >= 2 * 8


@pytest.mark.parametrize("target", [-1.0, math.nan])
def test_bad_targets(table: Table, target: float) -> None:
    with pytest.raises(BadValueError, match="target"):
        table.export(target)


def test_large_exports_come_in_several_batches(state: SlotState) -> None:
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"})
    state.begin(0)
    table.add([pa.array(np.arange(150_000))], n=1)
    export = table.export_full()
    assert [batch.num_rows for batch in export.batches] == [65536, 65536, 18928]
    fresh = SlotState.heap()
    restored = fresh.table("t", {"k": pa.int64()}, {"n": "int64"})
    fresh.begin_restore()
    fresh.restore({"t": export.batches})
    fresh.finish_restore(3)
    assert len(restored) == 150_000
    assert fresh.version == 3


def test_a_backup_of_another_shape_is_refused() -> None:
    state = SlotState.heap()
    state.table("t", {"k": pa.int64()}, {"n": "int64"})
    state.begin_restore()
    with pytest.raises(BackupUnreadableError, match="does not fit"):
        state.restore({"t": [pa.RecordBatch.from_pydict({"k": [1], "m": [2]})]})


def test_an_exact_export_also_drops_cleared_keys_of_value_zero(
    state: SlotState, table: Table
) -> None:
    table.add([[1, 2]], n=0)
    table.export_full()
    table.clear()
    assert table.divergence() == 0.0
    assert table.dirty_entries() == 2
    export = table.export(0.0)
    assert (export.full, export.entries, len(export.batches)) == (True, 0, 1)
    assert table.dirty_entries() == 0


@pytest.mark.parametrize("divergence", ["l1", "l2", "max", "count"])
def test_two_clears_do_not_make_a_backup_forget(divergence: str, state: SlotState) -> None:
    table = state.table("t", {"k": pa.int64()}, {"n": "int64"}, divergence=divergence)
    state.begin(0)
    table.add([[1]], n=[1])
    table.export(0.0)
    for _ in range(2):
        table.clear()
        table.add([[2]], n=[0])
    assert table.divergence(exact=True) == pytest.approx(2 if divergence == "count" else 1)
    assert table.dirty_entries() == 2
    assert table.export(0.0).full
    assert (table.divergence(), table.dirty_entries()) == (0.0, 0)


@pytest.mark.parametrize("columns", [1, 13, 60])
@pytest.mark.parametrize("divergence", ["l1", "l2"])
def test_rounding_is_allowed_for_where_an_export_is_just_enough(
    columns: int, divergence: str
) -> None:
    """What is left, rounding and all, is at most the target; and no entry more is written for it.

    The target is what the other rows leave, as it is told: every sum of it carries slack.
    """
    for rows in (2, 5, 40):
        amounts = 1 / (3.0 + np.arange(rows))

        def made(amounts: Any = amounts) -> Table:
            state = SlotState.heap()
            names = {f"c{number}": "float64" for number in range(columns)}
            table = state.table("t", {"k": pa.int64()}, names, divergence=divergence)
            state.begin(0)
            table.add([np.arange(len(amounts))], **dict.fromkeys(names, amounts))
            return table

        left = made(np.where(amounts == amounts.max(), 0.0, amounts)).divergence(exact=True)
        for target, most in ((left * (1 + 1e-9), 1), (left, 2), (math.nextafter(left, 0), 2)):
            export = made().export(target)
            assert export.divergence_after <= target
            assert export.entries <= most
