"""What a Column of Spark's functions asks for: the function, its arguments, the name of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Call:
    """A function of Spark's, called."""

    function: str
    arguments: tuple[Any, ...]
    """Columns, the values of literals, or ``ALL_ROWS`` for the star."""
    distinct: bool = False


ALL_ROWS = object()
"""The star of ``count("*")``."""


def read_call(session: SparkSession, column: Column) -> Call | None:
    """The call that a column is, with or without an alias; None where it is something else."""
    node = _node(column)
    if _kind(node) == "Alias":
        node = node.child()
    if _kind(node) != "UnresolvedFunction":
        return None
    arguments = node.arguments()
    read = tuple(_argument(session, arguments.apply(at)) for at in range(arguments.size()))
    return Call(str(node.functionName()).lower(), read, bool(node.isDistinct()))


def _argument(session: SparkSession, node: Any) -> Any:
    kind = _kind(node)
    if kind == "UnresolvedStar":
        return ALL_ROWS
    if kind == "Literal":
        return node.value()
    made: Any = session.sparkContext._jvm
    return Column(made.org.apache.spark.sql.Column(node))


def _node(column: Column) -> Any:
    if not isinstance(column, Column) or not hasattr(column, "_jc"):
        raise BadValueError(
            f"agg() was given {column!r}.",
            do='Give functions of pyspark.sql.functions, for example F.sum("bytes").',
        )
    return column._jc.node()


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
