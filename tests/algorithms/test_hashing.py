from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.algorithms.hashing import hash_array, hash_columns
from tether.core.errors import BadValueError

KEYS = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1).map(
        lambda values: pa.array(values, pa.int64())
    ),
    st.lists(st.one_of(st.none(), st.text(max_size=12)), min_size=1).map(
        lambda values: pa.array(values, pa.string())
    ),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=1).map(
        lambda values: pa.array(values, pa.bool_())
    ),
)


@given(KEYS, st.integers(0, 5))
def test_equal_keys_and_only_they_hash_alike(keys: pa.Array, seed: int) -> None:
    by_hash: dict[int, set[object]] = {}
    for value, hashed in zip(keys.to_pylist(), hash_array(keys, seed).tolist(), strict=True):
        by_hash.setdefault(hashed, set()).add(value)
    assert all(len(values) == 1 for values in by_hash.values())
    assert len(by_hash) == len(set(keys.to_pylist()))


@given(KEYS, st.data())
def test_a_slice_hashes_as_its_rows(keys: pa.Array, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(keys) - 1))
    sliced = hash_array(keys.slice(start), 1)
    assert sliced.tolist() == hash_array(keys, 1)[start:].tolist()


def test_swapped_columns_are_another_key() -> None:
    one = pa.record_batch({"a": [1, 2], "b": [2, 1]})
    hashes = hash_columns(one, ["a", "b"], 1)
    assert hashes[0] != hashes[1]


def test_hashes_are_spread_evenly() -> None:
    hashes = hash_array(pa.array(np.arange(100_000)), 1)
    counts = np.bincount((hashes % np.uint64(64)).astype(int), minlength=64)
    assert counts.min() > 1_300
    assert counts.max() < 1_830  # 1562 ± 6 standard deviations


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64())])
def test_keys_without_exact_equality_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(BadValueError, match="cannot be a key"):
        hash_array(pa.array([None], kind), 1)
