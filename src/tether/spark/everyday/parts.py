"""The numbers that an aggregate keeps for each key, and how its answer is computed from them.

All of them are sums, largest or smallest values of the rows, so a row changes two states alike and an
error that a loss leaves behind never grows. Parts for which there is no bound (whether there was a NaN,
the registers of a distinct count) have the weight ``DURABLE``: they are backed up in the epoch in which
they change.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampType,
)

from tether.algorithms.grouped import DistinctPart, Part
from tether.core.errors import BadValueError
from tether.operator import DURABLE
from tether.spark.everyday.aggregate import Aggregate
from tether.spark.everyday.reading import ALL_ROWS
from tether.spark.everyday.values import most_frequent, percentile

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

    from tether.spark.everyday.reading import Call

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_BROKEN = (FloatType, DoubleType)
KNOWN = (
    "count, sum, min, max, avg, mean, var_pop, var_samp, variance, stddev, stddev_pop, stddev_samp, "
    "percentile_approx, approx_top_k and approx_count_distinct"
)
_SAME = {
    "mean": "avg",
    "variance": "var_samp",
    "stddev": "stddev_samp",
    "approx_percentile": "percentile_approx",
}
_INSTEAD = {
    "median": "Use F.percentile_approx(column, 0.5).",
    "percentile": "Use F.percentile_approx, which keeps values to a few digits.",
    "mode": 'Use F.call_function("approx_top_k", column, F.lit(1)).',
}


def aggregate_of(
    session: SparkSession, call: Call, number: int, kind: DataType | None, answer: DataType
) -> Aggregate:
    """The parts of an aggregate.

    Args:
        session: Of the query.
        call: The function, with its arguments.
        number: Which aggregate of the query it is: names its columns.
        kind: Type of its first argument; None for all rows.
        answer: Type that Spark gives to the aggregate.

    Raises:
        BadValueError: It is none of those that can be kept within a bound.
    """
    name = _SAME.get(call.function, call.function)
    if call.distinct:
        raise BadValueError(
            f"{call.function}(DISTINCT …) cannot be kept as a number.",
            why="It would need every value that was ever seen.",
            do="Use F.approx_count_distinct, or plain Spark with tether.sql.bounded.",
        )
    if name == "count":
        return _count(call, number)
    assert kind is not None or name not in ("sum", "min", "max")
    whole = isinstance(kind, _WHOLE)
    numeric = whole or isinstance(kind, _BROKEN)
    if name in ("sum", "avg") or name.startswith(("var_", "stddev_")):
        if not numeric:
            raise _not_kept(call, kind, "Cast it to bigint or double first.")
        return _moments(name, number, call.arguments[0], whole=whole, answer=answer)
    if name in ("min", "max"):
        return _extreme("min" if name == "min" else "max", number, call, kind, answer)
    if name == "approx_count_distinct":
        return _distinct(number, call)
    if name == "percentile_approx":
        return percentile(session, call, number, kind, answer)
    if name == "approx_top_k":
        return most_frequent(session, call, number, kind)
    raise BadValueError(
        f"The aggregate {call.function!r} is not among those that Tether keeps.",
        why=f"These are {KNOWN}.",
        do=_INSTEAD.get(name)
        or "Write an operator (docs/your-own-operator.md), take a ready one (docs/algorithms.md), or "
        "keep the plain Spark query and give it a bound with tether.sql.bounded.",
    )


def _not_kept(call: Call, kind: DataType | None, do: str) -> BadValueError:
    shown = "that" if kind is None else kind.simpleString()
    return BadValueError(
        f"{call.function} over a column of type {shown} cannot be kept.",
        why="State is kept as 64-bit whole or floating-point numbers.",
        do=do,
    )


def _count(call: Call, number: int) -> Aggregate:
    name, given = f"n{number}", call.arguments[0]
    if len(call.arguments) > 1:
        raise BadValueError("count() of several columns is not kept.", do="Count one column.")
    every = given is ALL_ROWS or not hasattr(given, "_jc")  # F.count("*"), F.count(F.lit(1))
    read = f"a{number}"
    return Aggregate(
        inputs={} if every else {read: given},
        parts=[Part(name, F.count(F.lit(1) if every else F.col(read)), "int64")],
        shown=lambda: F.col(name),
    )


def _odd(number: int, value: Column) -> tuple[list[Part], Column]:
    """Values that stay in a sum for ever (NaN and infinities), and the column without them."""
    infinite = F.abs(value) == math.inf
    odd = F.isnan(value) | infinite
    flags = {
        f"nan{number}": F.isnan(value),
        f"up{number}": infinite & (value > 0),
        f"down{number}": infinite & (value < 0),
    }
    parts = [Part(f"odd{number}", F.count_if(odd), "int64", weight=DURABLE)]
    parts += [
        Part(name, F.coalesce(F.bool_or(true), F.lit(False)), "uint8")
        for name, true in flags.items()
    ]
    return parts, F.when(~odd, value)


def _moments(name: str, number: int, given: Any, *, whole: bool, answer: DataType) -> Aggregate:
    """Sums, means and variances: the count of values, their sum, the sum of their squares."""
    read = f"a{number}"
    value = F.col(read)
    exact = whole and name == "sum"
    odd: list[Part] = []
    if not exact:
        value = value.cast("double")
        odd, value = _odd(number, value) if not whole else ([], value)
    count, total, squares = f"n{number}", f"s{number}", f"q{number}"
    zero = F.lit(0).cast("long" if exact else "double")
    parts = [Part(total, F.coalesce(F.sum(value), zero), "int64" if exact else "float64")]
    if name == "sum":
        parts.append(Part(f"seen{number}", F.count(value) > 0, "uint8"))
    else:
        parts.append(Part(count, F.count(value), "int64"))
    if name.startswith(("var_", "stddev_")):
        parts.append(Part(squares, F.coalesce(F.sum(value * value), zero), "float64"))

    def shown() -> Column:
        n, s = F.col(count), F.col(total)
        if name == "sum":
            found = F.when(F.col(f"seen{number}") > 0, s)
        elif name == "avg":
            found = F.when(n > 0, s / n)
        else:
            square = F.greatest(F.col(squares) - s * s / n, F.lit(0.0))
            found = F.when(n > 1, square / (n - 1)) if "samp" in name else F.when(n > 0, square / n)
        if odd:
            nan, up, down = (F.col(f"{flag}{number}") > 0 for flag in ("nan", "up", "down"))
            useless = nan | (up & down) if name in ("sum", "avg") else nan | up | down
            if "samp" in name:  # one value alone has no such variance
                useless = useless & (n + F.col(f"odd{number}") > 1)
                up = down = F.lit(False)
            found = (
                F.when(useless, F.lit(math.nan))
                .when(up, F.lit(math.inf))
                .when(down, F.lit(-math.inf))
                .otherwise(found)
            )
        if name.startswith("stddev_"):
            found = F.sqrt(found)
        return found.cast(answer)

    return Aggregate(inputs={read: given}, parts=[*parts, *odd], shown=shown)


def _extreme(
    name: Literal["min", "max"], number: int, call: Call, kind: DataType | None, answer: DataType
) -> Aggregate:
    """Largest and smallest values. New keys start infinitely far away, so they are saved at once."""
    read, kept, seen = f"a{number}", f"x{number}", f"seen{number}"
    value: Column = F.col(read)
    back: Callable[[Column], Column] = lambda column: column.cast(answer)  # noqa: E731 - short
    odd: list[Part] = []
    floating = isinstance(kind, _BROKEN)
    if isinstance(kind, TimestampType):
        value, back = F.unix_micros(value), F.timestamp_micros
    elif isinstance(kind, DateType):
        value, back = (
            F.unix_date(value).cast("long"),
            lambda c: F.date_from_unix_date(c.cast("int")),
        )
    elif isinstance(kind, BooleanType):
        value, back = value.cast("int").cast("long"), lambda column: column.cast("boolean")
    elif floating:
        odd, value = _odd(number, value.cast("double"))
    elif not isinstance(kind, _WHOLE):
        raise _not_kept(call, kind, "Use plain Spark with tether.sql.bounded for such a column.")
    fold = F.max if name == "max" else F.min
    parts = [
        Part(kept, fold(value), "float64" if floating else "int64", how=name),
        Part(seen, F.count(value) > 0, "uint8"),
    ]

    def shown() -> Column:
        found = F.when(F.col(seen) > 0, back(F.col(kept)))
        if odd:  # Spark's order of numbers: -∞, numbers, ∞, NaN
            nan, up, down = (F.col(f"{flag}{number}") > 0 for flag in ("nan", "up", "down"))
            order = [(nan, math.nan), (up, math.inf)], [(down, -math.inf)]
            before, after = order if name == "max" else order[::-1]
            after = after if name == "max" else after[::-1]
            for condition, limit in reversed(before):
                found = F.when(condition, F.lit(limit)).otherwise(found)
            known = F.lit(False)
            for condition, _ in before:
                known = known | condition
            for condition, limit in after:
                found = F.when(~known & (F.col(seen) == 0) & condition, F.lit(limit)).otherwise(
                    found
                )
                known = known | condition
        return found.cast(answer)

    return Aggregate(inputs={read: call.arguments[0]}, parts=[*parts, *odd], shown=shown)


def _distinct(number: int, call: Call) -> Aggregate:
    """HyperLogLog: 2^p registers, each the longest run of zeros among the hashes that fell to it."""
    rsd = float(call.arguments[1]) if len(call.arguments) > 1 else 0.05
    bits = max(4, math.ceil(2.0 * math.log2(1.106 / rsd)))
    if bits > 16:
        raise BadValueError(
            f"approx_count_distinct with an error of {rsd:g} is not kept.",
            why=f"It would take 2^{bits} registers for each key.",
            do="Ask for an error of 0.005 or more.",
        )
    names = [f"{what}{number}" for what in ("a", "r", "h", "z", "m")]
    read, runs, harmonic, touched, raises = names
    registers = 1 << bits
    hashed = F.xxhash64(F.col(read))
    rest = F.shiftleft(hashed, bits).bitwiseOR(F.lit(1 << (bits - 1)).cast("long"))
    run = F.lit(65) - F.length(F.bin(rest))
    packed = F.shiftrightunsigned(hashed, 64 - bits) * 64 + run
    combined = F.collect_set(F.when(F.col(read).isNotNull(), packed.cast("int")))

    def shown() -> Column:
        empty = F.lit(float(registers)) - F.col(touched)
        alpha = {16: 0.673, 32: 0.697, 64: 0.709}.get(registers, 0.7213 / (1 + 1.079 / registers))
        raw = F.lit(alpha * registers * registers) / (F.lit(float(registers)) + F.col(harmonic))
        few = F.lit(float(registers)) * F.log(F.lit(float(registers)) / empty)
        return F.round(F.when((raw <= 2.5 * registers) & (empty > 0), few).otherwise(raw)).cast(
            "long"
        )

    return Aggregate(
        inputs={read: call.arguments[0]},
        distinct=DistinctPart(f"registers{number}", runs, combined, harmonic, touched, raises),
        shown=shown,
    )
