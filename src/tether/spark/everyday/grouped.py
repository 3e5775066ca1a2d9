"""``tether.stream(df).groupBy(…).agg(…)``, and how the answer is written: spelled as in Spark."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from tether.algorithms.grouped import GroupedParts
from tether.core.errors import BadValueError, QueryRefusedError
from tether.core.windows import Hopping
from tether.spark.everyday.parts import aggregate_of
from tether.spark.everyday.reading import ALL_ROWS, read_call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tether.spark.everyday.aggregate import Aggregate
    from tether.spark.query import Query
    from tether.spark.sinks import Sink
    from tether.spark.stream import Stream

OutputMode = Literal["append", "update", "complete"]
_DELAY = "spark.watermarkDelayMs"
_WINDOW_END, _TIME = "__window_end", "__event_time"


@dataclass(frozen=True)
class TimeWindow:
    """A window of event time among the things grouped by."""

    name: str
    """Of the answer's column."""
    time: Column
    length: float
    """Length of the window, in seconds."""
    every: float | None
    """Seconds between the ends of windows that overlap; None: they do not.

    Spark's windows end at these; at all of them, where the length is a multiple of the slide."""
    column: Column
    """The column that Spark's function made."""


class GroupedStream:
    """Rows grouped by columns; ``agg`` says what of.

    Args:
        stream: The rows.
        rows: A DataFrame of their shape.
        by: Columns, by name or as Spark's functions give them; one may be ``F.window(…)``.
    """

    def __init__(self, stream: Stream, rows: DataFrame, by: Sequence[str | Column]) -> None:
        if not by:
            raise BadValueError(
                "groupBy() was given no column.",
                why="State belongs to slots by its key.",
                do='Group by a column; one answer over all rows is groupBy(F.lit(0).alias("all")).',
            )
        self._stream, self._rows = stream, rows
        self._by = [F.col(f"`{one}`") if isinstance(one, str) else one for one in by]

    def agg(self, *aggregates: Column) -> Aggregated:
        """What to compute for each group, as in Spark.

        Args:
            aggregates: ``F.count("*")``, ``F.sum("bytes")``, ``F.max("ts").alias("last")``, ….
        """
        if not aggregates:
            raise BadValueError("agg() was given nothing to compute.", do='Give F.count("*").')
        return Aggregated(self._stream, self._rows, self._by, list(aggregates))

    def count(self) -> Aggregated:
        """How many rows each group has, in the column ``count``."""
        return self.agg(F.count("*").alias("count"))


@dataclass(frozen=True)
class Aggregated:
    """Aggregates of groups, to be started.

    Every setting gives a new object, so one can be started in several ways.
    """

    stream: Stream
    rows: DataFrame
    by: list[Column]
    aggregates: list[Column]
    mode: OutputMode = "append"
    slots: int | None = None
    divergence: str = "l1"
    settings: dict[str, Any] = field(default_factory=dict)

    # ---- settings, as on Spark's writeStream ---------------------------------------------------

    def outputMode(self, mode: str) -> Aggregated:  # noqa: N802 - Spark's name
        """Which rows an epoch gives.

        "update": groups that have changed. "complete": all groups, every time. "append", the default as
        in Spark: groups of windows that have ended, once; it needs a window and a watermark.
        """
        if mode.lower() not in ("append", "update", "complete"):
            raise BadValueError(
                f"The output mode {mode!r} is not known.",
                do='Use "append", "update" or "complete".',
            )
        return replace(self, mode=cast("OutputMode", mode.lower()))

    def queryName(self, name: str) -> Aggregated:  # noqa: N802 - Spark's name
        """The query's name in Spark."""
        return self._with(name=name)

    def trigger(self, **trigger: Any) -> Aggregated:
        """When epochs run, as for Spark's ``writeStream.trigger``."""
        return self._with(trigger=trigger)

    def option(self, key: str, value: Any) -> Aggregated:
        """``checkpointLocation``, as in Spark, and ``backupLocation`` beside it.

        Options of a sink go to ``tether.to_format``.
        """
        known = {"checkpointlocation": "checkpoint", "backuplocation": "backup"}
        if key.lower() not in known:
            raise BadValueError(
                f"The option {key!r} is not known here.",
                why="Known are checkpointLocation and backupLocation.",
                do="Give options of the sink with tether.to_format(…), the rest to start().",
            )
        return self._with(**{known[key.lower()]: str(value)})

    def parallelism(self, slots: int) -> Aggregated:
        """Number of slots; by default Spark's default parallelism."""
        return replace(self, slots=slots)

    def measured(self, divergence: str) -> Aggregated:
        """How errors add up to the bound: "l1", all of them, the default; "l2"; "max": the worst."""
        return replace(self, divergence=divergence)

    def _with(self, **settings: Any) -> Aggregated:
        return replace(self, settings={**self.settings, **settings})

    # ---- running it ----------------------------------------------------------------------------

    def start(self, output: Sink | str | None = None, **settings: Any) -> Query:
        """Start the query; ``output`` and settings as for ``Stream.start``."""
        return self.to_stream().start(output, **{**self.settings, **settings})

    def toTable(self, name: str, **settings: Any) -> Query:  # noqa: N802 - Spark's name
        """Start the query and write its answer into a table: appended, or replaced if complete."""
        if self.mode == "update":
            raise QueryRefusedError(
                "A table cannot be updated in place.",
                why="Rows of the output mode update replace earlier rows of their group.",
                do='Use outputMode("complete"), "append" with a window, or a function that merges.',
            )
        how = "overwrite" if self.mode == "complete" else "append"

        def save(rows: DataFrame, epoch: int) -> None:
            del epoch
            if how == "overwrite":
                # The table may be what is read meanwhile: Spark replaces it as a whole.
                rows = rows.localCheckpoint()
            rows.write.mode(how).saveAsTable(name)

        return self.start(save, **settings)

    def to_df(self) -> DataFrame:
        """The answer over a static DataFrame, as one epoch."""
        return replace(self, mode="complete").to_stream().to_df()

    def to_stream(self) -> Stream:
        """The aggregates as a stream, for further operators or several outputs."""
        window = self._window()
        delay = self._watermark(window)
        drops = window is not None and delay is not None and self.mode != "complete"
        if self.mode == "append" and not drops:
            raise QueryRefusedError(
                "The output mode append needs a window of event time and a watermark.",
                why="Only then is a group ever final. Spark's default is append, too.",
                do="Group by F.window(…) of a column with .withWatermark(…), or use "
                'outputMode("update") or "complete".',
            )
        plan = _Plan(self, window)
        operator = GroupedParts(
            [part for one in plan.found for part in one.parts],
            [one.distinct for one in plan.found if one.distinct is not None],
            [one.values for one in plan.found if one.values is not None],
            emit={"append": "ended", "update": "changed", "complete": "all"}[self.mode],  # type: ignore[arg-type]
            window_end=_WINDOW_END if drops else None,
            divergence=self.divergence,
        )
        assert not drops or window is not None
        return (
            self.stream.transform(plan.read)
            .apply(
                operator,
                key=plan.keys,
                parallelism=self.slots,
                window=Hopping(window.length, every=window.every) if drops and window else None,
                event_time=_TIME if drops else None,
                lateness=delay or 0.0,
            )
            .transform(plan.show)
        )

    def _window(self) -> TimeWindow | None:
        windows = [
            window
            for column, name in zip(self.by, _key_names(self), strict=True)
            if (window := _time_window(self.rows, column, name)) is not None
        ]
        if len(windows) > 1:
            raise BadValueError("There are two windows to group by.", do="Group by one of them.")
        return windows[0] if windows else None

    def _watermark(self, window: TimeWindow | None) -> float | None:
        """The delay of the window's event time in seconds; None where it has no watermark."""
        if window is None:
            return None
        field = self.rows.select(window.time).schema.fields[0]
        delay = field.metadata.get(_DELAY)
        return None if delay is None else delay / 1000.0


class _Plan:
    """The code before and after the operator: what is read of a row, and how the answer is shown."""

    def __init__(self, asked: Aggregated, window: TimeWindow | None) -> None:
        # Spark itself checks names and types, and says what the answer's columns are called.
        self.answer: StructType = asked.rows.groupBy(*asked.by).agg(*asked.aggregates).schema
        self._asked, self._window = asked, window
        names = _key_names(asked)
        self._names = names
        self.keys = [_WINDOW_END if window and window.name == name else name for name in names]
        fields = self.answer.fields[len(names) :]
        self.found = [
            _read_aggregate(asked, column, number, fields[number].dataType)
            for number, column in enumerate(asked.aggregates)
        ]
        self._shown: list[tuple[Callable[[], Column], str]] = [
            (one.shown, field.name) for one, field in zip(self.found, fields, strict=True)
        ]

    def read(self, rows: DataFrame) -> DataFrame:
        """Keys and what aggregates look at, by our own names."""
        inputs = [column.alias(name) for one in self.found for name, column in one.inputs.items()]
        keys = [column.alias(name) for column, name, _ in self._by()]
        window = self._window
        if window is None:
            return rows.select(*keys, *inputs)
        rows = rows.select(*keys, *inputs, window.time.alias(_TIME))
        ends = F.col(f"`{window.name}`.end").alias(_WINDOW_END)
        others = [F.col(f"`{name}`") for name in rows.columns if name != window.name]
        return rows.select(ends, *others)

    def show(self, rows: DataFrame) -> DataFrame:
        """The answer as Spark would give it."""
        keys = []
        for _, name, own in self._by():
            if own and self._window is not None:
                end = F.col(_WINDOW_END)
                start = end - F.make_dt_interval(
                    secs=F.lit(self._window.length).cast("decimal(18,6)")
                )
                keys.append(F.struct(start.alias("start"), end.alias("end")).alias(name))
            else:
                keys.append(F.col(f"`{name}`"))
        return rows.select(*keys, *(shown().alias(name) for shown, name in self._shown))

    def _by(self) -> list[tuple[Column, str, bool]]:
        window = self._window
        return [
            (column, name, window is not None and window.name == name)
            for column, name in zip(self._asked.by, self._names, strict=True)
        ]


def _key_names(asked: Aggregated) -> list[str]:
    names = asked.rows.groupBy(*asked.by).agg(F.count("*")).columns[:-1]
    return list(names)


def _read_aggregate(asked: Aggregated, column: Column, number: int, answer: Any) -> Aggregate:
    call = read_call(asked.rows.sparkSession, column)
    if call is None:
        raise BadValueError(
            f"The aggregate {column} cannot be taken apart.",
            why="It is not a plain call of a function, with or without an alias.",
            do='Give F.sum("bytes").alias("total") and compute with the answer afterwards.',
        )
    first = call.arguments[0] if call.arguments else None
    kind = None
    if isinstance(first, Column) and first is not ALL_ROWS:
        kind = asked.rows.select(first).schema.fields[0].dataType
    return aggregate_of(asked.rows.sparkSession, call, number, kind, answer)


def _time_window(rows: DataFrame, column: Column, name: str) -> TimeWindow | None:
    call = read_call(rows.sparkSession, column)
    if call is None or call.function not in ("window", "session_window"):
        return None
    if call.function == "session_window":
        raise _window_refused("Session windows are not kept.")
    time, length, slide, start = call.arguments
    seconds = _seconds(rows, length)
    if _seconds(rows, start) != 0:
        raise _window_refused(
            "Windows that do not begin at a whole length since 1970 are not kept."
        )
    if not isinstance(rows.select(time).schema.fields[0].dataType, TimestampType):
        raise _window_refused("Windows go by a column of type timestamp.")
    every = None if length == slide else _common(seconds, _seconds(rows, slide))
    return TimeWindow(name, time, seconds, every, column)


def _common(length: float, slide: float) -> float:
    """The largest distance of which both are multiples, in seconds."""
    return math.gcd(round(length * 1e6), round(slide * 1e6)) / 1e6


def _window_refused(what: str) -> QueryRefusedError:
    return QueryRefusedError(
        what,
        why="A window's losses are forgotten when it has ended: its end must be known beforehand.",
        do="Use F.window(time, length), or keep the plain Spark query with tether.sql.bounded.",
    )


def _seconds(rows: DataFrame, text: Any) -> float:
    """Length of an interval that Spark was given as text."""
    if not re.fullmatch(r"[\w .]+", str(text)):
        raise _window_refused(f"The length {text!r} is not understood.")
    value = rows.sparkSession.sql(
        f"SELECT unix_micros(timestamp_micros(0) + interval '{text}') AS micros"
    )
    return float(value.collect()[0].micros) / 1e6
