"""Columns as NumPy arrays: whatever Arrow brings."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether import to_numpy
from tether.core.errors import BadValueError


@given(st.lists(st.lists(st.none() | st.integers(-5, 5), max_size=4), min_size=1, max_size=4))
def test_chunks_and_nulls_are_no_trouble(chunks):
    column = pa.chunked_array([pa.array(chunk, pa.int64()) for chunk in chunks])
    want = [9 if item is None else item for chunk in chunks for item in chunk]
    found = to_numpy(column, null=9)
    assert found.dtype == np.int64
    assert found.tolist() == want


def test_types_become_what_numpy_has_for_them():
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    assert to_numpy(pa.array([True, None]), null=False).tolist() == [True, False]
    assert to_numpy(pa.array([noon], pa.timestamp("us", "Asia/Tokyo")))[0] == np.datetime64(
        "2026-01-01T12:00"
    )
    assert to_numpy(pa.array([decimal.Decimal("1.5")])).tolist() == [1.5]
    assert to_numpy(pa.array(["a", "b", "a"]).dictionary_encode()).tolist() == ["a", "b", "a"]
    assert to_numpy(pa.array([], pa.float32())).dtype == np.float32


def test_what_cannot_be_done_is_said_in_our_words():
    with pytest.raises(BadValueError, match="1 in 2 rows"):
        to_numpy(pa.array([1, None]))
    with pytest.raises(BadValueError, match="cannot stand for a null"):
        to_numpy(pa.array([1, None]), null="none")
    with pytest.raises(BadValueError, match="was given a list"):
        to_numpy([1, 2])
