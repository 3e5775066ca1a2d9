"""The operators of the benchmarks, from a module that brings the slow store into Python workers."""

from __future__ import annotations

import tether.testing.slow_store  # noqa: F401 - knows the protocol
from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.word_count import WordCount


class Sums(KeyedAggregate):
    """The keyed aggregate."""


class CountsOfWords(WordCount):
    """Word count."""
