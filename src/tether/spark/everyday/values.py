"""Quantiles and the most frequent values: aggregates that keep how often each value came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructType,
    VariantType,
)

from tether.algorithms.grouped import Part
from tether.algorithms.grouped_values import ValuesPart, bits_for
from tether.core.errors import BadValueError
from tether.spark.everyday.aggregate import Aggregate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from tether.spark.everyday.reading import Call

_NUMBERS = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType)
_NESTED = (ArrayType, MapType, StructType, VariantType)
_TOP, _ACCURACY = 5, 10_000
_TOO_LARGE = float(1 << 63)


def percentile(
    session: SparkSession, call: Call, number: int, kind: DataType | None, answer: DataType
) -> Aggregate:
    """``percentile_approx``: exact in rank, and in value to one part in its accuracy.

    Args:
        session: To read the fractions with.
        call: The function, with its arguments.
        number: Which aggregate of the query it is: names its columns.
        kind: Type of the column.
        answer: Type that Spark gives to the aggregate.
    """
    if not isinstance(kind, _NUMBERS):
        raise BadValueError(
            f"percentile_approx over a column of type {kind.simpleString() if kind else 'that'} "
            "cannot be kept.",
            why="Values are kept to a few significant digits, which only numbers have.",
            do="Use plain Spark with tether.sql.bounded for such a column.",
        )
    fractions = _constant(session, call.arguments[1])
    asked = fractions if isinstance(fractions, list) else [fractions]
    accuracy = _constant(session, call.arguments[2]) if len(call.arguments) > 2 else _ACCURACY
    read, answers = f"a{number}", f"q{number}"
    part = ValuesPart(
        table=f"values{number}",
        name=f"v{number}",
        combined=_collected(F.col(read).cast("double"), nulls=False),
        kind=DoubleType(),
        answer=answers,
        fractions=tuple(float(one) for one in asked),
        bits=bits_for(float(accuracy)),
    )
    single = answer.elementType if isinstance(answer, ArrayType) else answer

    def back(value: Column) -> Column:
        if isinstance(single, LongType):  # a double of the largest ones is too large by one
            return F.when(value >= _TOO_LARGE, F.lit((1 << 63) - 1)).otherwise(value.cast("long"))
        return value.cast(single)

    def shown() -> Column:
        found = F.transform(F.col(answers), back)
        return found if isinstance(answer, ArrayType) else found[0]

    return Aggregate(
        inputs={read: call.arguments[0]}, parts=[_seen(number, read)], values=part, shown=shown
    )


def most_frequent(
    session: SparkSession, call: Call, number: int, kind: DataType | None
) -> Aggregate:
    """``approx_top_k``: the most frequent values with their counts; all values are counted.

    Args:
        session: To read the number of values with.
        call: The function, with its arguments.
        number: Which aggregate of the query it is: names its columns.
        kind: Type of the column.
    """
    if kind is None or isinstance(kind, _NESTED):
        raise BadValueError(
            f"approx_top_k over a column of type {kind.simpleString() if kind else 'that'} "
            "cannot be kept.",
            why="Values are put in order where they are equally frequent.",
            do="Make one column of it, such as a text.",
        )
    read, answers = f"a{number}", f"t{number}"
    most = _constant(session, call.arguments[1]) if len(call.arguments) > 1 else _TOP
    part = ValuesPart(
        table=f"values{number}",
        name=f"v{number}",
        combined=_collected(F.col(read), nulls=True),
        kind=kind,
        answer=answers,
        most=int(most),
    )
    return Aggregate(
        inputs={read: call.arguments[0]},
        parts=[_seen(number, None)],
        values=part,
        shown=lambda: F.col(answers),
    )


def _seen(number: int, read: str | None) -> Part:
    """How many values a key has: it makes the key known where nothing else is asked of it."""
    return Part(f"n{number}", F.count(F.lit(1) if read is None else F.col(read)), "int64")


def _collected(value: Column, *, nulls: bool) -> Column:
    entry = F.struct(value.alias("v"))
    return F.collect_list(entry if nulls else F.when(value.isNotNull(), entry))


def _constant(session: SparkSession, given: Any) -> Any:
    """The value of an argument that does not depend on rows."""
    if not isinstance(given, Column):
        return given
    return session.sql("SELECT 1").select(given.alias("value")).collect()[0].value
