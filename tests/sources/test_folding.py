"""Folding in Arrow, without Spark: steps give the same as one, and what cannot be folded is refused."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from tether.sources.folding.fold import CannotFoldError, Fold, FoldColumn, can_be_folded, folded
from tether.sources.folding.parcels import packed, unpacked
from tether.sources.folding.spark_hash import slots_of

FOLD = Fold(
    key=("k", "word"),
    columns=(
        FoldColumn(name="n", how="count"),
        FoldColumn(name="there", how="count", column="v"),
        FoldColumn(name="total", how="sum", column="v"),
        FoldColumn(name="least", how="min", column="word2"),
        FoldColumn(name="most", how="max", column="v"),
    ),
)
SLOTS = 3
KINDS = {"k": "bigint", "word": "string"}


def _rows(seed: int, count: int) -> list[dict[str, Any]]:
    at = random.Random(seed)

    def word() -> str | None:
        return at.choice([None, "", "a", "ä", "longer than four", "z" * 9])

    return [
        {
            "k": at.choice([None, 0, -1, 2**62, 7]),
            "word": word(),
            "v": at.choice([None, *range(-5, 5)]),
            "word2": word(),
        }
        for _ in range(count)
    ]


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    schema = {"k": pa.int64(), "word": pa.string(), "v": pa.int64(), "word2": pa.string()}
    return pa.Table.from_pylist(rows, schema=pa.schema(schema))


def _in_python(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["k"], row["word"]].append(row)
    answer = {}
    for key, members in groups.items():
        values = [row["v"] for row in members if row["v"] is not None]
        words = [row["word2"].encode() for row in members if row["word2"] is not None]
        answer[key] = (
            len(members),
            len(values),
            sum(values) if values else None,
            min(words).decode() if words else None,
            max(values, default=None),
        )
    return answer


def test_parts_folded_apart_and_packed_by_slot_give_the_answer_of_all_rows() -> None:
    for seed in range(20):
        parts = [_rows(100 * seed + part, 40) for part in range(3)]
        by_slot = defaultdict(list)
        for part in parts:
            for slot, parcel in packed(folded(_table(part), FOLD), FOLD, SLOTS):
                by_slot[slot].append(parcel)
        found = {}
        for slot, parcels in by_slot.items():
            for batch in unpacked(parcels):
                homes = slots_of(batch.select(["k", "word"]), KINDS, SLOTS)
                assert set(homes.tolist()) == {slot}
                for row in batch.to_pylist():
                    key = (row["k"], row["word"])
                    assert key not in found
                    names = ("n", "there", "total", "least", "most")
                    found[key] = tuple(row[name] for name in names)
        assert found == _in_python([row for part in parts for row in part])


def test_no_rows_make_no_parcel() -> None:
    assert list(packed(folded(_table([]), FOLD), FOLD, SLOTS)) == []
    assert list(unpacked([])) == []


def test_a_sum_that_passes_64_bits_is_refused_and_one_that_only_looks_so_is_exact() -> None:
    fold = Fold(key=("k",), columns=(FoldColumn(name="s", how="sum", column="v"),))
    large = 2**62
    rows = pa.table({"k": [1, 1, 1, 1], "v": [large, large, -large, 5]})
    assert folded(rows, fold).to_pylist() == [{"k": 1, "s": large + 5}]
    with pytest.raises(CannotFoldError, match="64 bits"):
        folded(pa.table({"k": [1, 1], "v": [large, large]}), fold)


def test_numbers_below_zero_and_nulls_are_refused_where_the_operator_refuses_them() -> None:
    fold = Fold(key=("k",), columns=(FoldColumn(name="s", how="sum", column="v", whole=True),))
    assert folded(pa.table({"k": [1, 1], "v": [0, 3]}), fold).to_pylist() == [{"k": 1, "s": 3}]
    for wrong in (-1, None):
        with pytest.raises(CannotFoldError, match="below zero"):
            folded(pa.table({"k": [1, 1], "v": [4, wrong]}), fold)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.string(), FoldColumn(name="s", how="sum", column="v", kind="int64")),
        (pa.float64(), FoldColumn(name="s", how="sum", column="v", kind="int64")),
        (pa.decimal128(9), FoldColumn(name="s", how="sum", column="v")),
        (pa.float64(), FoldColumn(name="s", how="max", column="v")),  # NaN is the largest to Spark
        (pa.uint64(), FoldColumn(name="s", how="sum", column="v")),
    ],
)
def test_casts_and_types_that_differ_between_spark_and_arrow_are_left_to_spark(
    kind: pa.DataType, column: FoldColumn
) -> None:
    schema = pa.schema({"k": pa.int64(), "v": kind})
    assert not can_be_folded(schema, ["k"], [column])


def test_keys_of_broken_numbers_are_left_to_spark() -> None:
    schema = pa.schema({"k": pa.float64()})
    assert not can_be_folded(schema, ["k"], [FoldColumn(name="n", how="count")])
