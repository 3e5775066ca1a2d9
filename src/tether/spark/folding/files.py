"""Which queries read plain files whose rows can be folded in Arrow with Spark's own answer.

It is switched on only for what is known to be equal: Parquet files in a local file system, columns of
plain types as the files have them, aggregates that can be folded in steps. All else is left to Spark.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from tether.algorithms.word_count import words
from tether.sources.folding.fold import can_be_folded
from tether.sources.folding.spark_hash import kind_of
from tether.spark.folding.aggregates import fold_of, only_child
from tether.spark.folding.epoch_files import FileFolding
from tether.spark.places.pinning import has_one_executor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tether.spark.graph.flow import SourceNode
    from tether.spark.graph.prepared import PreparedOperator, PreparedQuery

_OPTIONS = {
    "path", "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage", "pathglobfilter",
    "recursivefilelookup", "filenameonly", "cleansource", "sourcearchivedir", "maxcachedfiles",
    "modifiedbefore", "modifiedafter",
}  # fmt: skip
"""Options that say which files are read when, and nothing of what is in them."""

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",  # else sums wrap around
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}


class NotFoldedError(Exception):
    """Why the rows of an operator are Spark's rows, in a few words for people."""


class _Leaf(NamedTuple):
    source: Any
    columns: dict[str, str]
    """Name in the files of each column."""
    words: bool = False
    """Whether the one column is text, of which each word is a row."""


def with_file_folding(query: PreparedQuery) -> PreparedQuery:
    """The same query; operators know whether their rows are folded where files are read, or why not."""
    return replace(
        query,
        operators={
            node: replace(one, folding=_folding(query, one))
            for node, one in query.operators.items()
        },
    )


def _folding(query: PreparedQuery, one: PreparedOperator) -> FileFolding | str | None:
    parents = one.node.parents
    source = next((node for node in query.flow.sources if node in parents), None)
    if one.combine is None or source is None or source in query.reading:
        return None
    rows = source.rows
    if not isinstance(rows._jdf.queryExecution().analyzed(), JavaObject):
        return None  # a session of tests that starts no Spark
    try:
        return _file_folding(query, source, one)
    except NotFoldedError as why:
        return str(why)


def _file_folding(query: PreparedQuery, source: SourceNode, one: PreparedOperator) -> FileFolding:
    rows = source.rows
    if len(query.flow.sources) > 1:
        raise NotFoldedError("the query has several sources")
    if only_child(query, source) is None:
        raise NotFoldedError("others take the same rows, or it goes by event time")
    leaf = _leaf(rows)
    _check_source(leaf, rows.sparkSession)
    if (fold := fold_of(rows, one)) is None:
        raise NotFoldedError("its aggregates cannot be folded in steps")
    used = sorted({*fold.key, *(column.column for column in fold.columns if column.column)})
    shown = to_arrow_schema(rows.schema, timezone="UTC")
    schema = pa.schema([(name, shown.field(name).type) for name in used])
    if not can_be_folded(schema, fold.key, fold.columns) or not all(
        is_plain(schema.field(name).type, rows.schema[name]) for name in used
    ):
        raise NotFoldedError("its columns are of types that Spark and Arrow may read differently")
    if not all(kind_of(schema.field(name).type) for name in fold.key):
        raise NotFoldedError("its key is of a type of which only Spark knows the slots")
    if not has_one_executor(rows.sparkSession):
        raise NotFoldedError("there are several executors")
    tasks = rows.sparkSession.sparkContext.defaultParallelism
    in_files = tuple(leaf.columns[name] for name in used)
    return FileFolding(fold=fold, schema=schema, in_files=in_files, tasks=tasks, words=leaf.words)


def is_plain(kind: pa.DataType, told: StructField) -> bool:
    """Types that Spark and Arrow read from Parquet alike: no calendars and no time zones among them.

    Nor text that is compared in another way than byte by byte, or that has a length in Spark.
    """
    if pa.types.is_string(kind) and (told.dataType != StringType() or told.metadata):
        return False
    return bool(
        pa.types.is_signed_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
    )


def _leaf(rows: DataFrame) -> _Leaf:
    """The stream of files that some rows are, but for names and order of columns."""
    plan = rows._jdf.queryExecution().analyzed()
    if _kind(plan) == "Filter":
        return _words_leaf(rows, plan)
    projections = []
    while _kind(plan) == "Project":
        projections.append(plan)
        plan = plan.child()
    if _kind(plan) != "StreamingRelation":
        raise NotFoldedError("its rows are not read from files, or DataFrame code lies between")
    known = {one.exprId().id(): str(one.name()) for one in _each(plan.output())}
    for projection in reversed(projections):
        found = {}
        for one in _each(projection.projectList()):
            inner = one.child() if _kind(one) == "Alias" else one
            if _kind(inner) != "AttributeReference" or inner.exprId().id() not in known:
                raise NotFoldedError("DataFrame code computes its columns")
            found[one.exprId().id()] = known[inner.exprId().id()]
        known = found
    output = rows._jdf.queryExecution().analyzed().output()
    columns = {str(one.name()): known[one.exprId().id()] for one in _each(output)}
    return _Leaf(plan.dataSource(), columns)


def _words_leaf(rows: DataFrame, plan: Any) -> _Leaf:
    """Lines of files split into words, exactly as ``tether.algorithms.word_count.words`` does."""
    shown, leaf = _shape(plan), plan
    for kind in ("Project", "Generate", "StreamingRelation"):
        leaf = leaf.child()
        if _kind(leaf) != kind:
            raise NotFoldedError("DataFrame code lies between")
    for one in _each(leaf.output()):
        name = str(one.name())
        if one.dataType().simpleString() == "string" and name in shown[-1]:
            lines = rows.sparkSession.createDataFrame(
                [], StructType([StructField(name, StringType())])
            )
            if _shape(words(lines, f"`{name}`")._jdf.queryExecution().analyzed()) == shown:
                return _Leaf(leaf.dataSource(), {rows.columns[0]: name}, words=True)
    raise NotFoldedError("DataFrame code lies between")


def _shape(plan: Any) -> list[str]:
    """The three uppermost nodes of a plan, without the numbers of this plan's columns."""
    lines = re.sub(r"#\d+L?", "", str(plan.toString())).splitlines()
    return [line.strip(" +-:~") for line in lines[:3]]


def _check_source(leaf: _Leaf, session: SparkSession) -> None:
    name = str(leaf.source.className())
    if name.lower() != "parquet":
        raise NotFoldedError(f"its source is {name}")
    options = set(str(leaf.source.options().keys().mkString("\n")).lower().splitlines())
    if unknown := sorted(options - _OPTIONS):
        raise NotFoldedError(f"its source has the option {unknown[0]}")
    for setting, value in _SETTINGS.items():
        if (session.conf.get(setting, value) or value).lower() != value:
            raise NotFoldedError(f"{setting} is not {value}")
    lower = [column.lower() for column in leaf.columns.values()]
    if len(set(lower)) < len(set(leaf.columns.values())):
        raise NotFoldedError("two of its columns differ in case alone")
    if any("." in name for name in lower):
        raise NotFoldedError("a column has a dot in its name")


def _each(found: Any) -> list[Any]:
    return [found.apply(at) for at in range(found.size())]


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
