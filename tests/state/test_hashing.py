from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.state import hashing
from tether.state.leaves import BytesPart


def hashes(texts: list[bytes], seed: int = 5) -> list[int]:
    part = BytesPart.of(pa.array(texts, pa.large_binary()))
    result: list[int] = hashing.mix_bytes(part.data, part.offsets, seed).tolist()
    return result


@given(st.lists(st.binary(max_size=40)), st.integers(0, 2**62))
def test_a_hash_depends_on_the_bytes_alone(texts: list[bytes], seed: int) -> None:
    together = hashes(texts, seed)
    assert together == [hashes([text], seed)[0] for text in texts]
    assert hashes(texts[::-1], seed) == together[::-1]


def test_close_strings_differ() -> None:
    texts = [b"a" * length for length in range(300)]
    texts += [b"\0" * length for length in range(300)]
    texts += [b"x" * 400 + bytes([last]) for last in range(256)]
    texts += [b"x" * 200 + bytes([last]) + b"y" * 300 for last in range(256)]
    texts = list(dict.fromkeys(texts))
    assert len(set(hashes(texts))) == len(texts)


def test_empty_batches_and_strings() -> None:
    assert hashes([]) == []
    assert len(set(hashes([b"", b"", b""]))) == 1


def test_the_seed_matters() -> None:
    assert hashes([b"abc"], 1) != hashes([b"abc"], 2)
    numbers = np.arange(10)
    assert not (hashing.mix(numbers, 1) == hashing.mix(numbers, 2)).any()


@pytest.mark.parametrize(
    "numbers",
    [
        np.arange(100_000),
        np.arange(100_000) * 4096,
        np.arange(100_000) << 40,
        np.arange(100_000, dtype=np.float64).view(np.int64),
        np.random.default_rng(1).integers(-(2**62), 2**62, 100_000),
    ],
    ids=["counting", "multiples", "high bits", "floats", "random"],
)
def test_usual_keys_spread_over_the_index(numbers: np.ndarray) -> None:
    top = hashing.top_bits(hashing.mix(numbers, 123)) >> 15
    places = np.bincount(top, minlength=1 << 17)
    # Thrown at random, 100,000 balls leave 46.6 % of 131,072 places empty and never pile up.
    assert abs(np.count_nonzero(places == 0) / (1 << 17) - 0.466) < 0.05
    assert places.max() < 14
