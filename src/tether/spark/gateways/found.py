"""Which sources of a query are gateways, as Spark's plan shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_gateway import JavaObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from tether.sources.gateway.spark_source import SourceOptions
    from tether.spark.graph.flow import Flow, SourceNode

_LEAF = "StreamingRelationV2"


class GatewayLeaf(NamedTuple):
    """A stream of gateways that a source of the query reads."""

    source: SourceNode
    options: SourceOptions
    raw: dict[str, str]
    """The options as they were given."""
    plain: bool
    """Whether the source is nothing but this leaf, without any DataFrame code."""


def gateway_leaves(flow: Flow) -> list[GatewayLeaf]:
    """All streams of gateways that a query reads."""
    return [leaf for source in flow.sources for leaf in _of(source)]


def _of(source: SourceNode) -> Iterator[GatewayLeaf]:
    from tether.sources.gateway.spark_source import (  # noqa: PLC0415 - loads Arrow Flight's parts
        FORMAT,
        SourceOptions,
    )

    for leaf, plain in _leaves(source.rows):
        if leaf.getClass().getSimpleName() == _LEAF and leaf.sourceName() == FORMAT:
            raw = {str(k): str(v) for k, v in leaf.extraOptions().asCaseSensitiveMap().items()}
            yield GatewayLeaf(source, SourceOptions.parse(raw), raw, plain)


def leaves_of(rows: DataFrame, source_format: str) -> list[dict[str, str]]:
    """Options of all streams of a data source that some rows are read from."""
    return [
        {str(k): str(v) for k, v in leaf.extraOptions().asCaseSensitiveMap().items()}
        for leaf, _ in _leaves(rows)
        if leaf.getClass().getSimpleName() == _LEAF and leaf.sourceName() == source_format
    ]


def _leaves(rows: DataFrame) -> Iterator[tuple[Any, bool]]:
    plan = rows._jdf.queryExecution().analyzed()
    if not isinstance(plan, JavaObject):  # a session of tests that starts no Spark
        return
    found = plan.collectLeaves()
    for at in range(found.size()):
        leaf = found.apply(at)
        yield leaf, bool(leaf.equals(plan))
