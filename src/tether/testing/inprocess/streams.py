"""A source whose epochs are known, Spark's two logs, and the handle of a running query.

Epochs run in the thread that asks for them, one after the other: nothing happens between two questions.
"""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.testing.inprocess.frames import Given, shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from tether.testing.inprocess.frames import LocalFrame
    from tether.testing.inprocess.session import LocalSession


class EpochSource(Given):
    """Rows cut into epochs, which become available as the test wants.

    Args:
        session: The session.
        epochs: The rows of each epoch.
        schema: Of all of them.
    """

    isStreaming = True  # noqa: N815 - Spark's name

    def __init__(
        self, session: LocalSession, epochs: Sequence[pa.RecordBatch], schema: pa.Schema
    ) -> None:
        super().__init__(session, shape(schema), [])
        self._epochs = list(epochs)
        self.available = len(self._epochs)
        """Number of epochs that can be read."""
        self.forgotten = 0
        """Number of oldest epochs that cannot be read any more."""

    def cut(self, epoch: int, before: str | None) -> str | None:
        """The end of an epoch, as Spark's log has it; None where the epoch is not there yet.

        Args:
            epoch: Its number.
            before: The end of the epoch before it; None of the first.
        """
        del before
        return str(epoch + 1) if epoch < self.available else None

    def rows_of(self, before: str | None, end: str) -> LocalFrame:
        """The rows between two ends, the same whenever they are asked for."""
        if int(before or 0) < self.forgotten:
            raise FileNotFoundError(f"the rows before epoch {self.forgotten} are gone")
        rows = self._epochs[int(before or 0) : int(end)]
        return Given(self.sparkSession, self.schema, [rows])

    @property
    def writeStream(self) -> _Starter:  # noqa: N802 - Spark's name
        """Starts a query, as Spark's ``writeStream`` does."""
        return _Starter(self)


class _Starter:
    def __init__(self, source: EpochSource) -> None:
        self._source = source
        self._function: Any = None
        self._checkpoint = ""

    def foreachBatch(self, function: Callable[[Any, int], None]) -> _Starter:  # noqa: N802
        self._function = function
        return self

    def option(self, name: str, value: str) -> _Starter:
        assert name == "checkpointLocation"
        self._checkpoint = value
        return self

    def start(self) -> LocalStream:
        return LocalStream(self._source, self._function, Path(self._checkpoint))


class LocalStream:
    """The handle of a query, as Spark would give it.

    Args:
        source: The source.
        function: What is called with each epoch.
        checkpoint: Directory of the two logs.
    """

    name = None
    lastProgress = None  # noqa: N815 - Spark's name
    status: dict[str, Any] = {}  # noqa: RUF012 - read only

    def __init__(
        self, source: EpochSource, function: Callable[[Any, int], None], checkpoint: Path
    ) -> None:
        self._source, self._function = source, function
        self._offsets, self._commits = checkpoint / "offsets", checkpoint / "commits"
        for folder in (self._offsets, self._commits):
            folder.mkdir(parents=True, exist_ok=True)
        self.runId = str(uuid.uuid4())
        self.id = self._identity(checkpoint / "metadata")
        self.recentProgress: list[Any] = []
        self._failure: Exception | None = None
        self._ended = threading.Event()

    @staticmethod
    def _identity(file: Path) -> str:
        if not file.exists():
            file.write_text(json.dumps({"id": str(uuid.uuid4())}))
        return str(json.loads(file.read_text())["id"])

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it may run further epochs."""
        return not self._ended.is_set()

    def exception(self) -> Exception | None:
        """Why it ended, if it failed."""
        return self._failure

    def stop(self) -> None:
        """End it."""
        self._ended.set()

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for its end."""
        ended = self._ended.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:  # noqa: N802
        """Run all epochs that the source has."""
        try:
            while (found := self._next()) is not None:
                self._run(*found)
        except Exception as error:
            self._failure = error
            self._ended.set()
            raise

    def _next(self) -> tuple[int, str] | None:
        newest = _newest(self._offsets)
        before = (
            None if newest is None else (self._offsets / str(newest)).read_text().split("\n")[2]
        )
        if newest is not None and before is not None and _newest(self._commits) != newest:
            return (newest, before) if self.isActive else None
        epoch = 0 if newest is None else newest + 1
        end = self._source.cut(epoch, before)
        return None if end is None or not self.isActive else (epoch, end)

    def _run(self, epoch: int, end: str) -> None:
        _log(self._offsets / str(epoch), ["v1", "{}", end])
        before = self._offsets / str(epoch - 1)
        start = before.read_text().split("\n")[2] if before.exists() else None
        self._function(self._source.rows_of(start, end), epoch)
        _log(self._commits / str(epoch), ["v1", "{}"])


def _newest(folder: Path) -> int | None:
    return max((int(file.name) for file in folder.iterdir() if file.name.isdigit()), default=None)


def _log(file: Path, lines: Sequence[str]) -> None:
    partial = file.with_name(f".{file.name}.writing")
    partial.write_text("\n".join(lines))
    partial.rename(file)
