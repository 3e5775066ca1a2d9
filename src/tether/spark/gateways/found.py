"""Which sources of a query are gateways, as Spark's plan shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tether.sources.leaves import plain_leaves_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.sources.gateway.spark_source import SourceOptions
    from tether.spark.graph.flow import Flow, SourceNode


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

    for raw, plain in plain_leaves_of(source.rows, FORMAT):
        yield GatewayLeaf(source, SourceOptions.parse(raw), raw, plain)
