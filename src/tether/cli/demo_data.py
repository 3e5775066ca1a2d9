"""The demo's text: words drawn by Zipf's law, a Parquet file an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tether.testing.epochs import write_epochs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VOCABULARY = 50_000
SYLLABLES = np.array(["ka", "lo", "mi", "ne", "ru", "sa", "to", "vi", "ze", "ba", "du", "fi"])


def vocabulary(size: int = VOCABULARY) -> pa.Array:
    """Words that can be told apart and pronounced: numbers written in syllables.

    Example:
        >>> vocabulary(14).to_pylist()[-2:]
        ['loka', 'lolo']
    """
    base = len(SYLLABLES)
    numbers = np.arange(size)
    words = SYLLABLES[numbers % base].astype(object)
    rest = numbers // base
    while rest.any():
        words = np.where(rest > 0, SYLLABLES[rest % base], "") + words
        rest = rest // base
    return pa.array(words, pa.string())


def write_words(directory: Path, *, epochs: int, words_per_epoch: int, seed: int) -> pa.Table:
    """Write the stream's files; give the true count of every word."""
    random = np.random.default_rng(seed)
    names = vocabulary()
    share = 1.0 / np.arange(1, VOCABULARY + 1)
    cumulative = np.cumsum(share / share.sum())
    totals = np.zeros(VOCABULARY, dtype=np.int64)

    def tables() -> Iterator[pa.Table]:
        for _ in range(epochs):
            picks = np.searchsorted(cumulative, random.random(words_per_epoch))
            picks = np.minimum(picks, VOCABULARY - 1)
            totals[:] += np.bincount(picks, minlength=VOCABULARY)
            yield pa.table({"word": names.take(pa.array(picks))})

    write_epochs(directory, tables())
    seen = pa.array(totals > 0)
    return pa.table({"word": names, "count": totals}).filter(seen)
