"""Rows that are computed when an action asks for them, as often as one asks: Spark's DataFrames, small.

A frame is a step of a plan. An action runs it stage by stage: what lies before a shuffle is done and
kept for the action, then every partition of the rest is one task. Every action runs all of it again,
but for what is persisted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tether.spark.graph.plan import SLOT
from tether.testing.inprocess.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from tether.protocols.copies import Seats
    from tether.testing.inprocess.session import LocalSession
    from tether.testing.inprocess.tasks import Cut

Batches = list[pa.RecordBatch]
_numbers = count()


class LocalFrame(ABC):
    """A step of a plan.

    Args:
        session: The session.
        schema: Of its rows; None where nobody asks.
        parents: The steps before it.
        partitions: How many partitions it has.
    """

    isStreaming = False  # noqa: N815 - Spark's name

    def __init__(
        self,
        session: LocalSession,
        schema: StructType | None,
        parents: Sequence[LocalFrame],
        partitions: int,
    ) -> None:
        self.sparkSession = session
        self._schema = schema
        self.parents, self.partitions = tuple(parents), partitions
        self.number = next(_numbers)
        self.kept: dict[int, Batches] | None = None
        """Partitions that were computed as a whole, while the frame is persisted."""

    # ---- a plan --------------------------------------------------------------------------------

    @property
    def schema(self) -> Any:
        """The rows' shape, in Spark's words."""
        return self._schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    @property
    def _jdf(self) -> Any:
        return _Plan()

    def mapInArrow(  # noqa: N802 - Spark's name
        self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: Any
    ) -> LocalFrame:
        """A function over each partition."""
        return Mapped(self, function, schema)

    def unionByName(self, other: LocalFrame) -> LocalFrame:  # noqa: N802
        """The rows of both, one after the other."""
        return United(self, other)

    def persist(self) -> LocalFrame:
        """Keep partitions once they are computed."""
        self.kept = {}
        return self

    def unpersist(self) -> None:
        """Keep them no longer."""
        self.kept = None

    # ---- actions -------------------------------------------------------------------------------

    def collect(self) -> list[dict[str, Any]]:
        """All rows."""
        return _rows(self.run())

    def take(self, rows: int, cut: Cut = "close") -> list[dict[str, Any]]:
        """The first rows, as ``limit(rows).collect()`` gets them: no partition is read further.

        Args:
            rows: How many.
            cut: What happens to a task that is read no further; see :mod:`.tasks`.
        """
        found: Batches = []
        for partition in range(self.partitions):
            left = rows - sum(batch.num_rows for batch in found)
            if left <= 0:
                break
            found += self.run([partition], most=left, cut=cut)
        return _rows(found)[:rows]

    @property
    def write(self) -> _Writer:
        """Only to nowhere."""
        return _Writer(self)

    def run(
        self, partitions: Sequence[int] | None = None, most: int | None = None, cut: Cut = "close"
    ) -> Batches:
        """One job: stages before this one, then a task for each of the partitions."""
        job = Job(self.sparkSession)
        return [
            batch
            for partition in (range(self.partitions) if partitions is None else partitions)
            for batch in job.task(self, partition, most, cut)
        ]

    def functions(self) -> Iterator[Any]:
        """The functions that the task of one partition calls: all since the shuffle before it."""
        for parent in self.parents:
            yield from parent.functions()

    # ---- inside a task -------------------------------------------------------------------------

    def read(self, partition: int, job: Job) -> Iterator[pa.RecordBatch]:
        """Called within a task: the partition's rows, kept ones if there are."""
        if self.kept is None:
            yield from self.compute(partition, job)
            return
        if partition not in self.kept:
            self.kept[partition] = list(self.compute(partition, job))
        yield from self.kept[partition]

    @abstractmethod
    def compute(self, partition: int, job: Job) -> Iterator[pa.RecordBatch]:
        """Called within a task: the partition's rows."""


class Job:
    """One action's work."""

    def __init__(self, session: LocalSession) -> None:
        self._session = session
        self.shuffled: dict[int, list[Batches]] = {}
        """Rows by partition behind each shuffle that has been done."""

    def task(self, frame: LocalFrame, partition: int, most: int | None, cut: Cut) -> Batches:
        """Do what lies before a partition of a frame, then the partition."""
        self._shuffle_before(frame)
        return self._session.tasks.run(Task(frame, partition, self, most, cut))

    def _shuffle_before(self, frame: LocalFrame) -> None:
        if frame.kept is not None and len(frame.kept) == frame.partitions:
            return
        if not isinstance(frame, Shuffled):
            for parent in frame.parents:
                self._shuffle_before(parent)
        elif frame.number not in self.shuffled:
            (before,) = frame.parents
            rows: Batches = []
            for partition in range(before.partitions):
                rows += self.task(before, partition, None, "close")
            self.shuffled[frame.number] = frame.split(rows)


class Given(LocalFrame):
    """Rows that are there."""

    def __init__(
        self, session: LocalSession, schema: StructType | None, partitions: Sequence[Batches]
    ) -> None:
        super().__init__(session, schema, (), len(partitions))
        self._partitions = list(partitions)

    def compute(self, partition: int, job: Job) -> Iterator[pa.RecordBatch]:
        """They are there."""
        del job
        yield from self._partitions[partition]


class Shuffled(LocalFrame):
    """Every row in the partition that a function names, which a further column tells, too."""

    def __init__(
        self, rows: LocalFrame, slots: int, home: Callable[[Mapping[str, Any]], int]
    ) -> None:
        super().__init__(rows.sparkSession, None, (rows,), slots)
        self._home = home

    def functions(self) -> Iterator[Any]:
        """What lies before has been done by tasks of its own."""
        return iter(())

    def split(self, batches: Batches) -> list[Batches]:
        """All rows, by partition."""
        if not batches:
            return [[] for _ in range(self.partitions)]
        table = pa.Table.from_batches(batches).combine_chunks()
        homes = [self._home(row) for row in table.to_pylist()]
        found = []
        for slot in range(self.partitions):
            at = [number for number, home in enumerate(homes) if home == slot]
            found.append(self._numbered(table.take(pa.array(at, pa.int64())), slot))
        return found

    def _numbered(self, rows: pa.Table, partition: int) -> Batches:
        """The rows of a partition in batches, with its number in a further column."""
        rows = rows.append_column(SLOT, pa.array([partition] * len(rows), pa.int32()))
        return list(rows.combine_chunks().to_batches(self.sparkSession.batch_rows))

    def compute(self, partition: int, job: Job) -> Iterator[pa.RecordBatch]:
        """What the stage before has left."""
        yield from job.shuffled[self.number][partition]


class Seated(Shuffled):
    """Every row in all partitions that are seats of its slot.

    Spark promises no order of rows after a shuffle. So here every second seat gets them from the last to
    the first, unless they are put into one order.
    """

    def __init__(
        self,
        rows: LocalFrame,
        seats: Seats,
        home: Callable[[Mapping[str, Any]], int],
        *,
        in_order: bool,
    ) -> None:
        super().__init__(rows, len(seats.runs), home)
        self._seats, self._in_order = seats, in_order

    def split(self, batches: Batches) -> list[Batches]:
        """All rows, by partition."""
        if not batches:
            return [[] for _ in range(self.partitions)]
        table = pa.Table.from_batches(batches)
        homes = pa.array([self._home(row) for row in table.to_pylist()], pa.int32())
        found = []
        for seat, slot in enumerate(self._seats.runs):
            rows = table.filter(pa.compute.equal(homes, slot))
            if self._in_order:
                rows = rows.sort_by([(name, "ascending") for name in rows.schema.names])
            elif seat % 2:
                rows = rows.take(pa.array(range(len(rows) - 1, -1, -1), pa.int64()))
            found.append(self._numbered(rows, seat))
        return found


class Mapped(LocalFrame):
    """A function over each partition."""

    def __init__(self, rows: LocalFrame, function: Any, schema: Any) -> None:
        super().__init__(rows.sparkSession, schema, (rows,), rows.partitions)
        self._function = function

    def functions(self) -> Iterator[Any]:
        """This one, too."""
        yield self._function
        yield from super().functions()

    def compute(self, partition: int, job: Job) -> Iterator[pa.RecordBatch]:
        """Call it."""
        yield from self._function(self.parents[0].read(partition, job))


class United(LocalFrame):
    """Partitions of one frame, then those of another."""

    def __init__(self, one: LocalFrame, other: LocalFrame) -> None:
        super().__init__(
            one.sparkSession, one.schema, (one, other), one.partitions + other.partitions
        )

    def compute(self, partition: int, job: Job) -> Iterator[pa.RecordBatch]:
        """The partition of the frame that has it."""
        one, other = self.parents
        if partition < one.partitions:
            yield from one.read(partition, job)
        else:
            yield from other.read(partition - one.partitions, job)


class _Writer:
    def __init__(self, frame: LocalFrame) -> None:
        self._frame = frame

    def format(self, name: str) -> _Writer:
        assert name == "noop", f"rows cannot be written as {name} here"
        return self

    def mode(self, name: str) -> _Writer:
        del name
        return self

    def save(self) -> None:
        self._frame.run()


class _Plan:
    """Spark's description of a plan: nothing in it depends on a clock or on chance."""

    def __getattr__(self, name: str) -> Any:
        return lambda: self

    def deterministic(self) -> bool:
        return True

    def toString(self) -> str:  # noqa: N802 - Spark's name
        return "in process"

    def isEmpty(self) -> bool:  # noqa: N802 - Spark's name, of its children
        return True

    def isStreaming(self) -> bool:  # noqa: N802 - Spark's name
        return True


def shape(schema: pa.Schema) -> Any:
    """An Arrow schema in Spark's words."""
    return from_arrow_schema(schema)


def _rows(batches: Batches) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]
