"""Rows of a gateway folded in Arrow, where they are fetched: far fewer of them become Spark's rows.

Where an operator lets Spark fold its rows per key (``Operator.combine``), and nothing lies between it
and a gateway, the fetching tasks fold first, by the same aggregates; Spark adds up what they give.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from tether.sources.folding.fold import can_be_folded
from tether.sources.gateway.spark_source import FORMAT, stream_schema
from tether.spark.folding.aggregates import fold_of, only_child

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from tether.sources.folding.fold import FoldColumn
    from tether.spark.gateways.found import GatewayLeaf
    from tether.spark.graph.prepared import PreparedQuery


def with_folding(query: PreparedQuery, leaves: Sequence[GatewayLeaf]) -> PreparedQuery:
    """The same query; it reads folded rows of gateways where that gives the same answers."""
    operators, reading = dict(query.operators), dict(query.reading)
    for leaf in leaves:
        node = only_child(query, leaf.source)
        if node is None or not leaf.plain or "fold" in {name.lower() for name in leaf.raw}:
            continue
        prepared = operators[node]
        fold = fold_of(leaf.source.rows, prepared)
        if fold is None or not can_be_folded(stream_schema(leaf.options), fold.key, fold.columns):
            continue
        if any(column.whole for column in fold.columns):
            continue  # Spark, which could tell what is wrong, never sees the rows
        reader = leaf.source.rows.sparkSession.readStream.format(FORMAT).options(**leaf.raw)
        reading[leaf.source] = reader.option("fold", msgspec.json.encode(fold).decode()).load()
        operators[node] = replace(prepared, combine=[_merged(one) for one in fold.columns])
    return replace(query, operators=operators, reading=reading)


def _merged(column: FoldColumn) -> Column:
    """What adds up rows that are folded already."""
    add_up = {"sum": F.sum, "count": F.sum, "min": F.min, "max": F.max}[column.how]
    return add_up(F.col(f"`{column.name}`")).alias(column.name)
