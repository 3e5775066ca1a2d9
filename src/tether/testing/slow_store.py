"""A local directory that answers as slowly as a store across a network: ``slow:///path``.

For the demo, benchmarks and tests. Two implementations with one price list, one for Python (here) and
one for the JVM (``SlowFileSystem.scala``, in the package's jar): a read, a write, a look at one object,
a listing and a deletion are one request each and take the latency longer; renaming and making folders
are free, since the file managers for object stores need neither. Both write to the same local disk and
wait for no fsync.

A Python worker knows the protocol once this module is imported there: an operator whose module imports
it brings it along.
"""

from __future__ import annotations

import os
import threading
import time
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tether.sql.jar import jar_path, without_spaces

if TYPE_CHECKING:
    from collections.abc import Callable

LATENCY = "TETHER_SLOW_STORE_LATENCY"
"""Environment variable with the latency in seconds: Python workers inherit it."""
REQUESTS = "TETHER_SLOW_STORE_REQUESTS"
"""Environment variable with a file that gets a line for each request: the bytes that it wrote."""
FILE_SYSTEM = "tether.files.SlowFileSystem"
"""The JVM's implementation, a class of our jar."""


class Requests(NamedTuple):
    """What a slow store was asked for."""

    number: int
    bytes_written: int


def requests(file: Path) -> Requests:
    """All requests so far, of Python and of the JVM."""
    lines = file.read_bytes().split() if file.is_file() else []
    return Requests(len(lines), sum(map(int, lines)))


def slow_settings(latency: float, file: Path | None = None) -> dict[str, str]:
    """What a session needs for its ``slow://`` paths to take ``latency`` seconds a request.

    Drivers, executors and Python workers take the latency and the file from the environment, so this is
    called before any of them starts.

    Args:
        latency: Seconds.
        file: Where each request leaves its line: see :func:`requests`.
    """
    told = {LATENCY: str(latency)} | ({REQUESTS: str(file)} if file is not None else {})
    os.environ.update(told)
    jar = str(without_spaces(jar_path()))
    return {
        "spark.driver.extraClassPath": jar,
        "spark.executor.extraClassPath": jar,
        "spark.hadoop.fs.slow.impl": FILE_SYSTEM,
        **{f"spark.executorEnv.{name}": value for name, value in told.items()},
    }


_inside = threading.local()


def _request(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method cost one request; what it calls inside belongs to the same one."""

    @wraps(method)
    def slow(self: SlowFiles, *arguments: Any, **options: Any) -> Any:
        if getattr(_inside, "request", False):
            return method(self, *arguments, **options)
        _inside.request = True
        try:
            given = (*arguments, *options.values())
            _pay(sum(len(one) for one in given if isinstance(one, bytes)))
            return method(self, *arguments, **options)
        finally:
            _inside.request = False

    return slow


def _pay(bytes_written: int) -> None:
    if path := os.environ.get(REQUESTS):
        with Path(path).open("ab", buffering=0) as file:
            file.write(b"%d\n" % bytes_written)
    time.sleep(float(os.environ.get(LATENCY, "0")))


class SlowFiles(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
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
