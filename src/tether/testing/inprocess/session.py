"""The part of a Spark session that the runtime uses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException

from tether.testing.inprocess.executors import Executors
from tether.testing.inprocess.frames import Given, LocalFrame
from tether.testing.inprocess.plan import LocalPlan
from tether.testing.inprocess.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql.types import StructType

    from tether.chaos.faults import Fault

Home = "Callable[[Mapping[str, Any], Sequence[str], int], int]"
"""A function of a row, the key columns and the number of slots that gives the row's slot."""


class LocalSession:
    """A session of this process.

    Args:
        home: The slot of a row, from the row, the key columns and the number of slots.
        batch_rows: Rows in one Arrow batch to a slot.
        executors: How many processes stand for executors; with 0 it is this process.
        faults: Those that a query is started with: tasks that one of them would kill get a process
            of their own.
    """

    version = "in process"
    _jsparkSession = None  # noqa: N815 - by which a classic session is known

    def __init__(
        self,
        home: Callable[[Mapping[str, Any], Sequence[str], int], int],
        *,
        batch_rows: int = 10_000,
        executors: int = 0,
        faults: Iterable[Fault] = (),
    ) -> None:
        self.home, self.batch_rows = home, batch_rows
        self.conf = _Settings({"spark.master": "local[1]"})
        self.sparkContext = _Context()
        self.read = _Reader()
        self.executors = Executors(executors) if executors else None
        self.tasks = Tasks(self.sparkContext, self.executors, tuple(faults))

    def tether_plan(self, key: list[str], slots: int, *_: Any, **__: Any) -> LocalPlan:
        """How an operator's rows reach its slots here; see :func:`tether.spark.graph.plan.plan_of`."""
        return LocalPlan(self, key, slots)

    def tether_places(self, seats: int) -> list[str]:
        """The executors of seats; see :class:`tether.spark.places.placed.Placed`."""
        return [str(self.executor(seat)) for seat in range(seats)]

    def tether_executors(self) -> int:
        """How many executors there are."""
        return 1 if self.executors is None else len(self.executors)

    def createDataFrame(self, rows: list[Any], schema: StructType) -> LocalFrame:  # noqa: N802
        """An empty frame of some shape."""
        assert not rows, "only the shape of frames is made here"
        return Given(self, schema, [])

    def range(self, start: int, end: int, step: int, partitions: int) -> _Range:
        """Numbers, to be named by ``selectExpr``."""
        assert (start, step, partitions) == (0, 1, 1)
        return _Range(self, end)

    def executor(self, slot: int) -> int:
        """Process id of the executor that holds a slot."""
        return os.getpid() if self.executors is None else self.executors.of(slot)

    def stop(self) -> None:
        """End the processes that stand for executors."""
        if self.executors is not None:
            self.executors.end()


class _Settings(dict[str, str]):
    set = dict.__setitem__


class _Context:
    """A context whose accumulators take in what successful tasks have added."""

    defaultParallelism = 1  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self._accumulators: list[_Accumulator] = []
        self.reports: list[tuple[int, Any]] | None = None
        """What the task in hand has added so far, by the accumulator's number; None outside tasks."""

    def accumulator(self, value: Any, param: Any) -> _Accumulator:
        """A new accumulator."""
        made = _Accumulator(self, len(self._accumulators), value, param)
        self._accumulators.append(made)
        return made

    def publish(self, reports: Iterable[tuple[int, Any]]) -> None:
        """A task has succeeded: what it added counts."""
        for number, term in reports:
            self._accumulators[number].take(term)


class _Accumulator:
    def __init__(self, context: _Context, number: int, value: Any, param: Any) -> None:
        self.value = value
        self._context, self._number, self._param = context, number, param

    def add(self, term: Any) -> None:
        assert self._context.reports is not None, "only tasks add to accumulators"
        self._context.reports.append((self._number, term))

    def take(self, term: Any) -> None:
        self.value = self._param.addInPlace(self.value, term)


class _Range:
    def __init__(self, session: LocalSession, end: int) -> None:
        self._session, self._end = session, end

    def selectExpr(self, expression: str) -> _Range:  # noqa: N802 - Spark's name
        self._name = expression.rsplit(" AS ", 1)[1]
        return self

    def repartitionById(self, slots: int, name: str) -> LocalFrame:  # noqa: N802
        assert (slots, name) == (self._end, self._name)
        one = [
            [pa.RecordBatch.from_pydict({name: pa.array([n], pa.int32())})] for n in range(slots)
        ]
        return Given(self._session, None, one)


class _Reader:
    def text(self, path: str) -> _Text:
        if not Path(path).exists():
            raise AnalysisException(f"there is no {path}")
        return _Text(Path(path))


class _Text:
    def __init__(self, path: Path) -> None:
        self._path = path

    def collect(self) -> list[str]:
        return self._path.read_text().splitlines()
