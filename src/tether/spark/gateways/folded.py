"""Rows of a gateway folded in Arrow, where they are fetched: far fewer of them become Spark's rows.

Where an operator lets Spark fold its rows per key (``Operator.combine``), and nothing lies between it
and a gateway, the fetching tasks fold first, by the same aggregates; Spark adds up what they give.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F

from tether.sources.gateway.folding import Fold, FoldColumn, can_be_folded
from tether.sources.gateway.spark_source import FORMAT, stream_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from tether.spark.gateways.found import GatewayLeaf
    from tether.spark.graph.flow import OperatorNode
    from tether.spark.graph.prepared import PreparedOperator, PreparedQuery

_HOW = {"Sum": "sum", "Count": "count", "Min": "min", "Max": "max"}
_KINDS = {"bigint": "int64", "double": "double"}


def with_folding(query: PreparedQuery, leaves: Sequence[GatewayLeaf]) -> PreparedQuery:
    """The same query; it reads folded rows of gateways where that gives the same answers."""
    operators, reading = dict(query.operators), dict(query.reading)
    for leaf in leaves:
        node = _only_child(query, leaf)
        if node is None or not leaf.plain or "fold" in {name.lower() for name in leaf.raw}:
            continue
        prepared = operators[node]
        fold = _fold(leaf.source.rows, prepared)
        if fold is None or not can_be_folded(stream_schema(leaf.options), fold.key, fold.columns):
            continue
        reader = leaf.source.rows.sparkSession.readStream.format(FORMAT).options(**leaf.raw)
        reading[leaf.source] = reader.option("fold", msgspec.json.encode(fold).decode()).load()
        operators[node] = replace(prepared, combine=[_merged(one) for one in fold.columns])
    return replace(query, operators=operators, reading=reading)


def _only_child(query: PreparedQuery, leaf: GatewayLeaf) -> OperatorNode | None:
    """The operator that takes the source's rows as they are, if nobody else does."""
    if leaf.source in query.flow.ends:
        return None
    children = [node for node in query.flow.order if leaf.source in node.parents]
    if len(children) != 1 or children[0] not in query.operators:
        return None
    node = query.operators[children[0]].node
    return None if node.event_time is not None or not node.key else node


def _fold(rows: DataFrame, prepared: PreparedOperator) -> Fold | None:
    """An operator's aggregates, if they are of the kinds that can be folded in steps."""
    if prepared.combine is None:
        return None
    key = [F.col(f"`{name}`") for name in prepared.node.key]
    plan = rows.groupBy(*key).agg(*prepared.combine)._jdf.queryExecution().analyzed()
    found = plan.aggregateExpressions()
    aggregates = [found.apply(at) for at in range(len(key), found.size())]
    columns = [_column(one) for one in aggregates]
    if not columns or any(column is None for column in columns):
        return None
    return Fold(
        key=tuple(prepared.node.key), columns=tuple(one for one in columns if one is not None)
    )


def _column(expression: Any) -> FoldColumn | None:
    """``sum(column) AS name`` and its like; None for anything else."""
    if _kind(expression) != "Alias" or _kind(expression.child()) != "AggregateExpression":
        return None
    aggregate = expression.child()
    function = aggregate.aggregateFunction()
    how, inputs = _HOW.get(_kind(function)), function.children()
    if how is None or aggregate.isDistinct() or not aggregate.filter().isEmpty():
        return None
    if inputs.size() != 1:
        return None
    value, kind = inputs.apply(0), ""
    if how == "count" and _kind(value) == "Literal" and value.value() is not None:
        return FoldColumn(name=expression.name(), how="count")
    if _kind(value) == "Cast":
        kind = _KINDS.get(value.dataType().simpleString(), "no")
        value = value.child()
    if _kind(value) != "AttributeReference" or kind == "no":
        return None
    return FoldColumn(name=expression.name(), how=how, column=value.name(), kind=kind)  # type: ignore[arg-type]


def _merged(column: FoldColumn) -> Column:
    """What adds up rows that are folded already."""
    add_up = {"sum": F.sum, "count": F.sum, "min": F.min, "max": F.max}[column.how]
    return add_up(F.col(f"`{column.name}`")).alias(column.name)


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
