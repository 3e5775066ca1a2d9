"""Rows of files folded in Arrow: what slots get is what Spark would have given them."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.heavy_hitters import LocalSketch
from tether.algorithms.word_count import WordCount, words
from tether.core.errors import TetherError
from tether.sources.folding.fold import Fold, FoldColumn
from tether.sources.folding.parcels import PARCEL, SLOT, unpacked
from tether.spark.folding import epoch_files
from tether.spark.folding.epoch_files import FileFolding, pieces_of, shared
from tether.spark.folding.files import is_plain
from tether.spark.folding.reading import read_parcels
from tether.testing.epochs import read_epochs, write_epochs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SLOTS = 3
SCHEMA = pa.schema(
    {
        "long": pa.int64(),
        "int": pa.int32(),
        "short": pa.int16(),
        "byte": pa.int8(),
        "flag": pa.bool_(),
        "text": pa.string(),
        "double": pa.float64(),
        "float": pa.float32(),
    }
)
SPARK_SCHEMA = (
    "long long, int int, short short, byte byte, flag boolean, text string, double double, "
    "float float"
)
KEYS = (["long"], ["text"], ["int", "flag"], ["text", "byte", "long"], ["short", "text"])
COLUMNS = (
    FoldColumn(name="n", how="count"),
    *(FoldColumn(name=f"there_{name}", how="count", column=name) for name in SCHEMA.names),
    *(
        FoldColumn(name=f"sum_{name}", how="sum", column=name)
        for name in ("int", "short", "byte", "double", "float")
    ),
    FoldColumn(name="cast_double", how="sum", column="float", kind="double"),
    FoldColumn(name="cast_long", how="sum", column="int", kind="int64"),
    *(
        FoldColumn(name=f"{how}_{name}", how=how, column=name)  # type: ignore[arg-type]
        for how in ("min", "max")
        for name in ("long", "int", "short", "byte", "flag", "text")
    ),
)


def _value(at: random.Random, kind: pa.DataType) -> Any:
    """What is likely to go wrong; sums of the broken numbers are exact in any order."""
    if at.random() < 0.15:
        return None
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return at.choice([0, 1, -1, 3, most - 1, -most])
    if pa.types.is_boolean(kind):
        return at.random() < 0.5
    if pa.types.is_string(kind):
        return at.choice(
            ["", "a", "A", "ä", "\u2713\u2713", "abc", "abcd", "abcde", "x" * 17, "\0"]
        )
    return at.choice(
        [0.0, -0.0, 0.25, -1.5, 3.0] + ([math.nan, math.inf] if at.random() < 0.05 else [])
    )


def _table(seed: int, rows: int) -> pa.Table:
    at = random.Random(seed)
    return pa.table(
        {field.name: [_value(at, field.type) for _ in range(rows)] for field in SCHEMA},
        schema=SCHEMA,
    )


def _by_spark(column: FoldColumn) -> Any:
    if not column.column:
        return F.count(F.lit(1)).alias(column.name)
    value = F.col(f"`{column.column}`")
    if column.kind:
        value = value.cast({"int64": "bigint", "double": "double"}[column.kind])
    how = {"sum": F.sum, "count": F.count, "min": F.min, "max": F.max}[column.how]
    return how(value).alias(column.name)


def _shown(rows: list[dict[str, Any]]) -> set[str]:
    """Rows as text: NaN is NaN there, and a zero below zero is not one above."""
    return {repr(sorted(row.items())) for row in rows}


def _write_in_many_forms(spark: SparkSession, where: Path) -> None:
    """Files as others write them: encodings, pages, columns in another order, columns without nulls."""
    forms: list[dict[str, Any]] = [
        {"compression": "zstd", "use_dictionary": False, "data_page_version": "2.0"},
        {"compression": "gzip", "version": "1.0", "row_group_size": 7, "data_page_size": 64},
        {"compression": "none", "write_statistics": False, "store_schema": False},
        {
            "use_dictionary": False,
            "column_encoding": dict.fromkeys(("long", "int"), "DELTA_BINARY_PACKED"),
        },
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    ]
    for number, form in enumerate(forms):
        table = _table(100 + number, 60)
        if number % 2:
            table = table.select(SCHEMA.names[::-1]).append_column("more", pa.array([None] * 60))
        pq.write_table(table, where / f"form-{number}.parquet", **form)
    whole = pa.schema([field.with_nullable(nullable=False) for field in SCHEMA])
    rows = [row for row in _table(200, 900).to_pylist() if None not in row.values()]
    pq.write_table(pa.Table.from_pylist(rows, schema=whole), where / "no-nulls.parquet")
    large = _table(201, 50)
    at = SCHEMA.get_field_index("text")
    large = large.set_column(at, "text", large["text"].cast(pa.large_string()))
    pq.write_table(large, where / "large-text.parquet")
    spark.createDataFrame(_table(202, 80)).coalesce(1).write.parquet(str(where / "sparks"))
    next((where / "sparks").glob("*.parquet")).rename(where / "by-spark.parquet")


def test_files_folded_in_arrow_give_sparks_own_answer_in_sparks_own_slots(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_epochs(tmp_path, (_table(seed, rows) for seed, rows in enumerate((400, 1, 0, 90))))
    _write_in_many_forms(spark, tmp_path)
    paths = sorted(map(str, tmp_path.glob("*.parquet")))
    rows = spark.read.schema(SPARK_SCHEMA).parquet(*paths)
    for key in KEYS:
        fold = Fold(key=tuple(key), columns=COLUMNS)
        folding = FileFolding(fold=fold, schema=SCHEMA, in_files=tuple(SCHEMA.names), tasks=SLOTS)
        parts = shared(pieces_of(paths, folding)[0], 3)
        assert len(parts) == 3
        parcels = defaultdict(list)
        for part in parts:
            for one in read_parcels(part, folding, SLOTS):
                parcels[one[SLOT][0].as_py()].append(one[PARCEL][0].as_buffer())
        found = [
            {**row, "slot": slot}
            for slot in range(SLOTS)
            for batch in unpacked(parcels[slot])
            for row in batch.to_pylist()
        ]
        slot = F.pmod(F.hash(*key), F.lit(SLOTS)).alias("slot")
        expected = rows.groupBy(*key).agg(*map(_by_spark, COLUMNS), slot).toArrow().to_pylist()
        assert _shown(found) == _shown(expected)
        assert len(found) == len(expected)


def _start(rows: Any, where: Path, **options: Any) -> Any:
    stream = tether.stream(rows).apply(KeyedAggregate(["v"]), key="k", parallelism=2)
    return stream.start(
        tolerance=tether.Approximate(max_state_error=1e9),
        backup=str(where / "backup"),
        checkpoint=str(where / "checkpoint"),
        **{"fold_at_source": True, **options},
    )


def _totals(query: Any) -> dict[Any, Any]:
    return {row["k"]: (row["count"], row["sum(v)"]) for row in query.table("totals").collect()}


def _told(query: Any) -> list[str]:
    return [event.cause for event in query.story() if event.what == "replanned"]


@pytest.mark.parametrize("by", ["driver", "tasks"])
def test_a_stream_is_folded_where_it_can_be_and_says_what_it_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "tasks":
        monkeypatch.setattr(epoch_files, "DRIVERS_BYTES", 0)
    monkeypatch.setattr(epoch_files, "FEW_BYTES", 200)
    long, other = pa.int64(), pa.int32()
    many = [at % 50 for at in range(30_000)]
    write_epochs(
        tmp_path / "in",
        [
            pa.table({"k": [1, 1, 2, None], "v": [1, 2, 3, 4]}),
            pa.table({"k": pa.array([], long), "v": pa.array([], long)}),
            pa.table({"k": many, "v": [1] * 30_000}),  # more than go with the code of tasks
            pa.table({"v": pa.array([5], other), "k": pa.array([1], other)}),  # Spark widens these
            pa.table({"k": [9], "v": [9]}),
        ],
    )
    renamed = read_epochs(spark, tmp_path / "in", "k long, v long, missing string")
    query = _start(renamed.select("v", F.col("k").alias("k")), tmp_path)
    try:
        query.processAllAvailable()
        totals, story = _totals(query), _told(query)
    finally:
        query.stop()
    expected = dict.fromkeys(range(50), (600, 600))
    expected |= {1: (603, 608), 2: (601, 603), None: (1, 4), 9: (601, 609)}
    assert totals == expected
    assert "Its rows are folded in Arrow" in query.explain()
    (cause,) = story
    assert "of a file is of type int32" in cause
    rows = [one["numInputRows"] for one in query.recentProgress if "addBatch" in one["durationMs"]]
    assert rows == [4, 0, 30_000, 1, 1]


def test_what_cannot_be_folded_is_sparks_and_explain_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in" / "part=7"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"k": [1, 2], "v": [3, 4]}), folder / "a.parquet")
    rows = spark.readStream.schema("k long, v long, part int").parquet(str(tmp_path / "in"))
    for number, (given, options, why) in enumerate(
        [
            (rows, {"fold_at_source": False}, ""),
            (rows.where("k > 0"), {}, "DataFrame code lies between"),
            (
                rows.select("k", (F.col("v") + 0).alias("v")),
                {},
                "DataFrame code computes its columns",
            ),
            (rows, {}, None),  # only the plan of an epoch shows that folders name columns
        ]
    ):
        query = _start(given, tmp_path / str(number), **options)
        try:
            query.processAllAvailable()
            assert _totals(query) == {1: (1, 3), 2: (1, 4)}
        finally:
            query.stop()
        if why is None:
            assert "names of folders" in _told(query)[0]
        else:
            told = f"Spark reads and folds its rows: {why}" if why else ""
            assert [line for line in query.explain().splitlines() if "folds" in line] == (
                [f"{told}."] if told else []
            )
            assert _told(query) == []


def test_a_sink_may_put_partitions_of_a_folded_epoch_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    many = [at % 40 for at in range(30_000)]
    write_epochs(
        tmp_path / "in",
        [
            pa.table({"k": list(range(40)), "v": [1] * 40}),
            pa.table({"k": many, "v": [1] * 30_000}),  # more than go with the code of tasks
        ],
    )
    given: list[dict[int, int]] = []

    def together(rows: Any, epoch: int) -> None:
        found = rows.coalesce(1).collect()
        assert len(found) == 40, epoch
        given.append({row["k"]: row["count"] for row in found})

    rows = read_epochs(spark, tmp_path / "in", "k long, v long")
    stream = tether.stream(rows).apply(KeyedAggregate(["v"]), key="k", parallelism=4)
    query = stream.start(together)
    try:
        query.processAllAvailable()
        assert given == [dict.fromkeys(range(40), 1), dict.fromkeys(range(40), 751)]
        assert _totals(query) == dict.fromkeys(range(40), (751, 751))
        assert _told(query) == ["Spark's partitions were not the slots"]
    finally:
        query.stop()
    assert "Its rows are folded in Arrow" in query.explain()


def test_text_that_spark_compares_otherwise_is_left_to_it() -> None:
    def plain(kind: StringType, **told: str) -> bool:
        return is_plain(pa.string(), StructField("t", kind, metadata=told))

    assert plain(StringType())
    assert not plain(StringType("UTF8_LCASE"))
    assert not plain(StringType(), __CHAR_VARCHAR_TYPE_STRING="char(5)")
    assert is_plain(pa.int64(), StructField("n", LongType(), metadata={"comment": "any"}))


def test_an_epoch_that_is_too_large_to_be_held_is_sparks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_files, "MOST_BYTES", 8_000)
    write_epochs(
        tmp_path / "in",
        [pa.table({"k": [5] * rows, "v": [1] * rows}) for rows in (300, 600, 10)],
    )
    query = _start(read_epochs(spark, tmp_path / "in", "k long, v long"), tmp_path)
    try:
        query.processAllAvailable()
        assert _totals(query) == {5: (910, 910)}
        (cause,) = _told(query)
        assert "more than" in cause
    finally:
        query.stop()


def test_errors_in_the_rows_are_told_as_spark_tells_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_epochs(tmp_path / "large", [pa.table({"k": [1, 1], "v": [2**62, 2**62]})])
    query = _start(read_epochs(spark, tmp_path / "large", "k long, v long"), tmp_path / "a")
    with pytest.raises(TetherError, match="overflow"):
        query.processAllAvailable()
    query.stop()
    write_epochs(tmp_path / "below", [pa.table({"k": [1, 1], "v": [5, -5]})])
    sketch = LocalSketch(["k"], value="v", threshold=10)
    stream = tether.stream(read_epochs(spark, tmp_path / "below", "k long, v long"))
    query = stream.apply(sketch, key="k", parallelism=2).start(fold_at_source=True)
    assert "Its rows are folded in Arrow" in query.explain()
    with pytest.raises(TetherError, match="nulls or negative numbers"):
        query.processAllAvailable()
    query.stop()


def test_words_are_those_that_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    blanks = [" ", "\t", "\n", "\x0b", "\f", "\r", "  ", "\x1c", "\x00"]
    at = random.Random(5)
    lines = [
        "".join(at.choice([*blanks, "To", "be", "or-not", "A1_", "."]) for _ in range(12))
        for _ in range(60)
    ]
    write_epochs(
        tmp_path / "in",
        [
            pa.table({"n": [1] * 62, "value": [*lines, None, ""]}),
            pa.table({"n": [1], "value": ["\u0130stanbul be \u2003 \u03a3\u03a3"]}),
        ],
    )
    read = read_epochs(spark, tmp_path / "in", "n int, value string")
    query = (
        tether.stream(words(read))
        .apply(WordCount(), key="word", parallelism=2)
        .start(fold_at_source=True)
    )
    try:
        query.processAllAvailable()
        found = {row["word"]: row["count"] for row in query.table("totals").collect()}
        assert [cause.split(": ")[1] for cause in _told(query)] == [
            "There is more than ASCII in the text."
        ]
    finally:
        query.stop()
    assert "Its rows are folded in Arrow" in query.explain()
    static = spark.read.schema("n int, value string").parquet(str(tmp_path / "in"))
    expected = words(static).groupBy("word").count().collect()
    assert found == {row["word"]: row["count"] for row in expected}
