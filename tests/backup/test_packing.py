"""Numbers in fewer bytes: the same bits come back, and what would not come back is left alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backup.samples import header

from tether.backup.framecodec import decode_frame, encode_frame
from tether.backup.packing import packed, unpacked
from tether.core.errors import BackupUnreadableError
from tether.core.numbers import STEP

LIMITS = [
    0,
    1,
    -1,
    127,
    128,
    -128,
    -129,
    2**15,
    -(2**15),
    2**31 - 1,
    2**31,
    -(2**31),
    2**62,
    -(2**63),
]
ROWS = 300


def floats(values: Any, exponent: int) -> pa.RecordBatch:
    schema = pa.schema([pa.field("v", pa.float64(), metadata={STEP: str(exponent).encode()})])
    return pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], schema=schema)


def bits(batch: pa.RecordBatch) -> list[int]:
    return list(batch.column(0).to_numpy().view(np.int64))


@given(st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_whole_numbers_come_back_and_take_no_more_than_they_need(
    ends: list[int], empty: int
) -> None:
    batches = [pa.record_batch({"n": pa.array([end] * ROWS, pa.int64())}) for end in ends]
    batches[len(batches) :] = [batches[0].slice(0, 0)] * empty
    short, changed = packed(batches)
    width = next(
        w for w in (1, 2, 4, 8) if all(-(2 ** (8 * w - 1)) <= e < 2 ** (8 * w - 1) for e in ends)
    )
    assert short[0].schema.field("n").type.bit_width == 8 * width
    assert changed == (width < 8)
    assert [unpacked(one) for one in short] == batches


@given(
    st.lists(
        st.one_of(
            st.integers(-(2**31) + 1, 2**31 - 1).map(float),
            st.sampled_from([0.0, -0.0, 0.5, math.inf, math.nan, 5e-324, 1e308, 2.0**31]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([0, -1, -40, 30, -999, 899, -5000]),
)
@settings(max_examples=120, deadline=None)
def test_floats_come_back_bit_by_bit_whatever_is_said_of_their_step(
    values: list[float], exponent: int
) -> None:
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(np.array(values * ROWS), max(min(exponent, 900), -1000))
    batch = floats(scaled, exponent)
    (short,), _ = packed([batch])
    assert bits(unpacked(short)) == bits(batch)


def test_multiples_of_a_step_take_two_bytes_and_others_eight() -> None:
    steps = np.arange(-1000, 1000).astype(float)
    (short,), changed = packed([floats(np.ldexp(steps, -20), -20)])
    assert changed
    assert short.schema.field("v").type == pa.int16()
    for odd in (2.0**-21, -0.0, math.nan, math.inf, 2.0**40):
        batch = floats([*np.ldexp(steps, -20), odd], -20)
        assert packed([batch]) == ([batch], False) or math.isnan(odd)
        assert packed([batch])[1] is False


def test_what_cannot_be_packed_or_is_not_worth_it_is_left_alone() -> None:
    for batch in (
        pa.record_batch({"n": pa.array(range(50), pa.int64())}),
        pa.record_batch({"n": pa.array([None, *range(500)], pa.int64())}),
        pa.record_batch({"n": pa.array(range(500), pa.uint64())}),
        pa.record_batch({"n": pa.array([float(n) for n in range(500)])}),
        pa.record_batch({"n": pa.array(["a"] * 500)}),
    ):
        assert packed([batch]) == ([batch], False)
    assert packed([]) == ([], False)


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=6), st.integers(0, 40_000))
@settings(max_examples=60, deadline=None)
def test_numbers_that_only_rise_come_back(starts: list[int], gap: int) -> None:
    batches = [
        pa.record_batch({"n": pa.array([start + gap * n for n in range(ROWS)], pa.int64())})
        for start in starts
    ]
    short, _ = packed(batches)
    assert [unpacked(one) for one in short] == batches
    (alone,), changed = packed([pa.record_batch({"n": pa.array(range(0, 10**8, 10**5))})])
    assert changed
    assert alone.schema.field("n").type == pa.int32()
    (near,), _ = packed([pa.record_batch({"n": pa.array(range(10**7, 10**7 + 3000))})])
    assert near.schema.field("n").type == pa.int32()  # as large as the first of them
    (low,), _ = packed([pa.record_batch({"n": pa.array(range(100, 10**6, 90))})])
    assert low.schema.field("n").type == pa.int8()


def test_differences_that_wrap_around_are_not_taken_for_gaps() -> None:
    batch = pa.record_batch({"n": pa.array([-(2**63), 2**63 - 1, 5] * ROWS, pa.int64())})
    assert packed([batch]) == ([batch], False)


def test_a_slice_is_packed_as_what_it_shows() -> None:
    whole = pa.record_batch({"n": pa.array(np.arange(3000)), "s": pa.array(["x"] * 3000)})
    part = whole.slice(700, 900)
    (short,), changed = packed([part])
    assert changed
    assert unpacked(short) == part


def frame_of(batches: list[pa.RecordBatch]) -> bytes:
    return b"".join(encode_frame(header(), {"part": batches}))


def test_frames_of_small_numbers_are_short_and_keep_all_metadata() -> None:
    schema = pa.schema(
        [pa.field("index", pa.int64(), metadata={b"a": b"b"}), pa.field("value", pa.int64())],
        metadata={b"tether.part": b"partial"},
    )
    large = [np.arange(20_000), np.arange(20_000) << 40]
    small = [np.arange(20_000), np.arange(20_000)]
    frames = [
        frame_of([pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=schema)])
        for columns in (large, small)
    ]
    assert len(frames[1]) < 0.3 * 16 * 20_000 < len(frames[0])
    for frame, columns in zip(frames, (large, small), strict=True):
        (batch,) = decode_frame(frame).parts["part"]
        assert batch.schema.equals(schema, check_metadata=True)
        assert [column.to_pylist() for column in batch.columns] == [c.tolist() for c in columns]


@pytest.mark.parametrize(
    "told",
    [
        {b"tether.packed": b"i4"},
        {b"tether.packed": b"floats", STEP: b"x"},
        {b"tether.packed": b"floats", STEP: b"2000"},
        {b"tether.packed": b"floats"},
    ],
)
def test_impossible_packing_is_an_unreadable_frame(told: dict[bytes, bytes]) -> None:
    field = pa.field("n", pa.int8(), metadata=told)
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int8())], schema=pa.schema([field]))
    with pytest.raises(BackupUnreadableError):
        decode_frame(frame_of([batch]))
