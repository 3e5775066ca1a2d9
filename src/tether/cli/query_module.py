"""A query of a user's own module, for commands that look at it before it runs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.cli.session import open_session
from tether.core.errors import BadValueError, TetherError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from tether.planning.topology import Partitioning, Topology
    from tether.spark.query import Query
    from tether.spark.stream import Stream

DEFAULT_NAME = "stream"
LONGEST_SECONDS = 600.0
"""How long measuring waits for the epochs that it was asked for."""


def load_stream(what: str, *, master: str) -> Stream:
    """The stream that a module defines.

    Args:
        what: A file (``query.py``) or a module (``package.query``), with ``:name`` behind it where the
            stream is not named ``stream``. It is a ``tether`` stream, or a function that gives one; a
            function with a parameter is called with a Spark session.
        master: Spark's master URL, for that session.

    Raises:
        BadValueError: There is no such module or name, or it is no stream.
    """
    module_name, _, name = what.partition(":")
    name = name or DEFAULT_NAME
    module = load_module(module_name)
    if not hasattr(module, name):
        raise BadValueError(
            f"{module_name} defines no {name!r}.",
            why="A query module names its query: a stream, or a function that gives one.",
            do=f"Call it {DEFAULT_NAME!r}, or name it: {module_name}:my_name.",
        )
    found = getattr(module, name)
    if inspect.isfunction(found):
        found = found(open_session(master)) if inspect.signature(found).parameters else found()
    from tether.spark.stream import Stream  # noqa: PLC0415 - needs PySpark

    if not isinstance(found, Stream):
        raise BadValueError(
            f"{name!r} of {module_name} is {type(found).__name__}, not a stream.",
            why="A query is what tether.stream(df).apply(…) gives, before start() is called.",
            do="Let it be that, or a function that returns that.",
        )
    return found


def measured_topology(
    stream: Stream,
    epochs: int,
    *,
    correlated: Sequence[str],
    partitionings: Mapping[tuple[str, str], Partitioning],
    folding: Sequence[str],
) -> Topology:
    """Run some epochs of a stream, keep nothing of them, and take its rates.

    Args:
        stream: The stream; its own source is read.
        epochs: How many epochs; fewer where the source ends before.
        correlated: As for ``Stream.topology``.
        partitionings: As for ``Stream.topology``.
        folding: As for ``Query.topology``.

    Raises:
        TetherError: No epoch came within ten minutes.
    """
    query = stream.start()
    try:
        _wait(query, epochs)
        return query.topology(correlated=correlated, partitionings=partitionings, folding=folding)
    finally:
        query.stop()


def _wait(query: Query, epochs: int) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        error = query.exception()
        if error is not None:
            raise error
        if len(_with_rows(query)) >= epochs:
            return
        if _with_rows(query) and not query.status["isDataAvailable"]:
            query.processAllAvailable()  # the source has no more: what came is all there is
            return
        time.sleep(0.05)
    raise TetherError(
        f"The query did not run {epochs} epochs in {LONGEST_SECONDS:.0f} s.",
        why="Its source gives no rows.",
        do="Give the rates with --rate, or feed the source.",
    )


def _with_rows(query: Query) -> list[dict[str, Any]]:
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def load_module(name: str) -> ModuleType:
    """A user's file or module, whose operators executors can use.

    Raises:
        BadValueError: There is none.
    """
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        path = Path(name)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Operators are pickled by the name of their module, which executors cannot import: so it goes
        # by value, as what is typed into a shell does.
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        _pickled_by_value(module)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise BadValueError(
            f"The query module {name} cannot be loaded.",
            why=str(error),
            do="Give a .py file or a module that can be imported from here; a topology is a .toml or "
            ".json file.",
        ) from error
    return module


def _pickled_by_value(module: ModuleType) -> None:
    from pyspark import cloudpickle  # noqa: PLC0415 - needs PySpark

    cloudpickle.register_pickle_by_value(module)
