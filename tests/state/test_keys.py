"""Keys of every type: what is equal, what is not, and that they come back as they were."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.core.errors import BadValueError
from tether.state import SlotState, Table
from tether.state import keys as keys_module

D = decimal.Decimal
UTC = dt.UTC

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 0, 127, None]),
    "uint8": (pa.uint8(), [0, 255, None]),
    "int16": (pa.int16(), [-5, 5, None]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1, None]),
    "uint64": (pa.uint64(), [0, 2**63, 2**64 - 1]),
    "bool": (pa.bool_(), [True, False, None]),
    "float32": (pa.float32(), [0.5, -1.5, math.inf, None]),
    "float64": (pa.float64(), [0.1, 0.2, -math.inf, 5e-324, None]),
    "date32": (pa.date32(), [dt.date(1970, 1, 1), dt.date(2026, 2, 3), None]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(2026, 1, 1, tzinfo=UTC), dt.datetime(1960, 1, 1, tzinfo=UTC), None],
    ),
    "time64": (pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(0)]),
    "duration": (pa.duration("ms"), [dt.timedelta(seconds=1), dt.timedelta(0), None]),
    "decimal": (pa.decimal128(20, 2), [D("1.10"), D("-1.10"), D("99999999999999999.99"), None]),
    "decimal256": (pa.decimal256(50, 0), [D(10) ** 40, D(-1), D(0)]),
    "string": (pa.string(), ["", "a", "ab", "a" * 8, "a" * 9, "ä€𝄞", "x" * 1000, None]),
    "large_string": (pa.large_string(), ["", "b", None]),
    "string_view": (pa.string_view(), ["", "short", "a text that does not fit inline", None]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff" * 17, None]),
    "fixed_binary": (pa.binary(3), [b"abc", b"abd", None]),
    "list": (pa.list_(pa.int32()), [[], [1], [1, 2], [None], [1, None], None]),
    "strings": (pa.list_(pa.string()), [[], [""], ["", ""], ["ab"], ["a", "b"], [None], None]),
    "nested list": (pa.list_(pa.list_(pa.int8())), [[], [[]], [[], []], [[1]], [None], None]),
    "fixed list": (pa.list_(pa.int8(), 2), [[1, 2], [2, 1], None]),
    "struct": (
        pa.struct({"a": pa.int64(), "b": pa.string()}),
        [{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": None, "b": None}, None],
    ),
    "list of structs": (
        pa.list_(pa.struct({"a": pa.int8(), "b": pa.list_(pa.string())})),
        [[], [{"a": 1, "b": ["x"]}], [{"a": 1, "b": None}], [None], None],
    ),
}


def table_of(keys: dict[str, pa.DataType], **options: Any) -> tuple[SlotState, Table]:
    state = SlotState.heap()
    table = state.table("t", keys, {"n": "int64"}, **options)
    state.begin(0)
    return state, table


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_found_again_and_comes_back(name: str) -> None:
    kind, values = TYPES[name]
    _, table = table_of({"k": kind})
    twice = pa.array(values + values, kind)
    rows = table.add([twice], n=1)
    assert rows.tolist() == list(range(len(values))) * 2
    assert table.get([twice.slice(len(values))]).columns["n"].tolist() == [2] * len(values)
    (batch,) = table.batches()
    assert batch.schema.field("k").type == kind
    assert batch.column("k").to_pylist() == values
    some = table.rows_to_batch(np.array([len(values) - 1, 0]))
    assert some.column("k").to_pylist() == [values[-1], values[0]]
    batch.validate(full=True)
    some.validate(full=True)


@pytest.mark.parametrize("name", TYPES)
def test_sliced_columns_are_read_at_their_offset(name: str) -> None:
    kind, values = TYPES[name]
    _, table = table_of({"k": kind})
    padded = pa.array([*values[:1] * 3, *values], kind).slice(3)
    table.add([padded.slice(1)], n=1)
    assert not table.get([padded.slice(0, 1)]).found.any()
    assert [row["k"] for batch in table.batches() for row in batch.to_pylist()] == values[1:]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_floats_group_as_in_spark(kind: pa.DataType) -> None:
    _, table = table_of({"k": kind})
    size = kind.bit_width // 8
    quiet, other = np.array([np.nan] * 2, f"f{size}")
    odd = np.array([other], f"f{size}").view(f"u{size}") | 1  # another NaN
    floats = np.concatenate([[0.0, -0.0, quiet], odd.view(f"f{size}"), [1.0]]).astype(f"f{size}")
    rows = table.add([pa.array(floats, kind)], n=1)
    assert rows.tolist() == [0, 0, 1, 1, 2]


def test_null_is_not_zero_nor_empty() -> None:
    _, table = table_of({"a": pa.int64(), "b": pa.string()})
    rows = table.add([[0, None, 0, None], ["", "", None, None]], n=[1, 2, 3, 4])
    assert rows.tolist() == [0, 1, 2, 3]
    found = table.get([[None, 0], [None, ""]])
    assert found.columns["n"].tolist() == [4, 1]


def test_nulls_may_come_late() -> None:
    _, table = table_of({"k": pa.int64()})
    table.add([[0, 1, 2]], n=1)
    table.add([[None, 0]], n=10)
    table.add([[None, 2]], n=100)
    (batch,) = table.batches()
    assert batch.to_pydict() == {"k": [0, 1, 2, None], "n": [11, 1, 101, 110]}


def test_parts_do_not_run_together() -> None:
    _, table = table_of({"a": pa.string(), "b": pa.string()})
    rows = table.add([["ab", "a", "", "abc"], ["c", "bc", "abc", ""]], n=1)
    assert len(set(rows.tolist())) == 4


def test_what_lies_behind_a_null_does_not_matter() -> None:
    offsets, data = pa.array([0, 2, 4], pa.int32()), b"xyab"
    valid = pa.py_buffer(bytes([0b10]))
    hidden = pa.Array.from_buffers(
        pa.string(), 2, [valid, offsets.buffers()[1], pa.py_buffer(data)]
    )
    assert hidden.to_pylist() == [None, "ab"]
    _, table = table_of({"k": pa.string()})
    table.add([hidden], n=1)
    assert table.add([pa.array([None, "ab"])], n=1).tolist() == [0, 1]


def test_keys_are_cast_to_the_declared_type() -> None:
    _, table = table_of({"k": pa.int64(), "s": pa.string()})
    small = pa.array([1, 2], pa.int8())
    coded = pa.array(["x", "y"]).dictionary_encode()
    chunked = pa.chunked_array([["x"], ["y"]])
    assert table.add([small, coded], n=1).tolist() == table.add([small, chunked], n=1).tolist()
    with pytest.raises(BadValueError, match="does not fit"):
        table.add([pa.array(["one"]), pa.array(["x"])], n=1)
    with pytest.raises(BadValueError, match="does not fit"):
        table.add([pa.array([1.5]), pa.array(["x"])], n=1)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"k": pa.map_(pa.string(), pa.int8())},
        {"k": pa.null()},
        {"k": pa.struct({f"f{i}": pa.int8() for i in range(64)})},
    ],
    ids=["none", "map", "null", "too many"],
)
def test_types_that_cannot_be_keys(keys: dict[str, pa.DataType]) -> None:
    with pytest.raises(BadValueError, match=r"key|Key"):
        SlotState.heap().table("t", keys, {"n": "int64"})


def test_many_null_bits() -> None:
    _, table = table_of({f"k{i}": pa.int8() for i in range(40)})
    columns = [
        pa.array([None if i == row else 0 for row in range(40)], pa.int8()) for i in range(40)
    ]
    assert table.add(columns, n=1).tolist() == list(range(40))
    assert table.add(columns, n=1).tolist() == list(range(40))


TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=20), st.binary(max_size=3).map(bytes.hex)))


@settings(max_examples=60)
@given(st.lists(st.tuples(TEXTS, st.integers(0, 3)), max_size=6))
def test_string_pairs_agree_with_a_dict(batches: list[tuple[list[str | None], int]]) -> None:
    _, table = table_of({"a": pa.string(), "b": pa.int16()})
    model: dict[Any, int] = {}
    for texts, spread in batches:
        numbers = [at % (spread + 1) for at in range(len(texts))]
        table.add([pa.array(texts, pa.string()), pa.array(numbers, pa.int16())], n=1)
        for pair in zip(texts, numbers, strict=True):
            model[pair] = model.get(pair, 0) + 1
    rows = [row for batch in table.batches() for row in batch.to_pylist()]
    assert {(row["a"], row["b"]): row["n"] for row in rows} == model
    assert [(row["a"], row["b"]) for row in rows] == list(model)  # in order of appearance


@pytest.mark.parametrize("texts", [False, True], ids=["int", "string"])
def test_many_keys_with_a_very_bad_hash(monkeypatch: pytest.MonkeyPatch, texts: bool) -> None:
    def bad(parts: Any, nulls: Any, seed: int) -> Any:
        good = hash_keys(parts, nulls, seed)
        return (good & 0x3FF) << 20 | good & 0x3FF  # a thousand values for all keys

    hash_keys = keys_module.hash_keys
    monkeypatch.setattr(keys_module, "hash_keys", bad)
    count = 30_000 if texts else 120_000
    kind = pa.string() if texts else pa.int64()
    state, table = table_of({"k": kind})
    numbers = np.random.default_rng(1).permutation(count)
    keys = pa.array(numbers).cast(kind)
    for start in range(0, count, 20_000):
        table.add([keys.slice(start, 20_000)], n=pa.array(numbers[start : start + 20_000]))
    assert len(table) == count
    again = table.get([keys])
    assert again.found.all()
    assert (again.columns["n"] == numbers).all()
    assert not table.get([pa.array([-1, count + 1]).cast(kind)]).found.any()
    state.commit(0)


_NO_PANDAS = """
import sys
import pyarrow as pa
from tether.state import SlotState
batch = next(iter(pa.ipc.open_stream(sys.stdin.buffer)))
state = SlotState.heap()
table = state.table("t", {"k": pa.int64(), "w": pa.string()}, {"n": "int64"})
state.begin(0)
table.add(batch, n=batch.column("n"))
table.get(batch).to_batch()
table.rows_to_batch(table.changed())
assert state.export(0.0)
assert "pandas" not in sys.modules, "pandas was imported"
"""


def test_a_worker_need_not_import_pandas() -> None:
    columns = {"k": [1, None, 3], "w": ["a", "b", None], "n": [1, 2, 3]}
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    ran = subprocess.run(
        [sys.executable, "-c", _NO_PANDAS],
        input=sink.getvalue().to_pybytes(),
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
