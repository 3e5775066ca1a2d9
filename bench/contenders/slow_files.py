"""A local directory that answers as slowly as a store across a network: ``slow:///path``.

Two implementations with one price list, one for Python (here) and one for the JVM
(``bench/jvm/SlowFileSystem.scala``): a read, a write, a look at one object, a listing and a deletion
are one request each and take the latency longer; renaming and making folders are free, since the file
managers for object stores need neither. Both write to the same local disk and wait for no fsync.

Python workers know the protocol because the operators below live in this module: whoever unpickles
one imports it.
"""

from __future__ import annotations

import os
import threading
import time
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.word_count import WordCount

if TYPE_CHECKING:
    from collections.abc import Callable

LATENCY = "TETHER_BENCH_STORE_LATENCY"
"""Environment variable with the latency in seconds: Python workers inherit it."""
COUNT = "TETHER_BENCH_STORE_REQUESTS"
"""Environment variable with a file that gets a byte for each request."""

_inside = threading.local()


def _request(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method cost one request; what it calls inside belongs to the same one."""

    @wraps(method)
    def slow(self: SlowFiles, *arguments: Any, **options: Any) -> Any:
        if getattr(_inside, "request", False):
            return method(self, *arguments, **options)
        _inside.request = True
        try:
            _count()
            time.sleep(float(os.environ.get(LATENCY, "0")))
            return method(self, *arguments, **options)
        finally:
            _inside.request = False

    return slow


def _count() -> None:
    if path := os.environ.get(COUNT):
        with Path(path).open("ab", buffering=0) as file:
            file.write(b".")


class SlowFiles(LocalFileSystem):
    """Local files, each request with a latency."""

    protocol = "slow"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"auto_mkdir": True, **options})

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return LocalFileSystem._strip_protocol(str(path).removeprefix("slow://"))

    cat_file = _request(LocalFileSystem.cat_file)
    # Object stores serve several objects side by side: one latency for all of them.
    cat = _request(LocalFileSystem.cat)
    cat_ranges = _request(LocalFileSystem.cat_ranges)
    info = _request(LocalFileSystem.info)
    exists = _request(LocalFileSystem.exists)
    ls = _request(LocalFileSystem.ls)
    find = _request(LocalFileSystem.find)
    rm_file = _request(LocalFileSystem.rm_file)

    @_request
    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a whole object; folders are no concern of an object store's users."""
        self.makedirs(self._parent(path), exist_ok=True)
        super().pipe_file(path, value, mode=mode, **options)


fsspec.register_implementation("slow", SlowFiles, clobber=True)


class Sums(KeyedAggregate):
    """The keyed aggregate, from a module that knows the slow store."""


class CountsOfWords(WordCount):
    """Word count, from a module that knows the slow store."""
