"""Which data sources a streaming DataFrame is read from, as Spark's plan shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

_LEAF = "StreamingRelationV2"


def leaves_of(rows: DataFrame, source_format: str) -> list[dict[str, str]]:
    """Options of all streams of a data source that some rows are read from."""
    return [options for options, _ in plain_leaves_of(rows, source_format)]


def plain_leaves_of(rows: DataFrame, source_format: str) -> Iterator[tuple[dict[str, str], bool]]:
    """The same, and of each whether the rows are nothing but that, without any DataFrame code."""
    for leaf, plain in _leaves(rows):
        if leaf.getClass().getSimpleName() == _LEAF and leaf.sourceName() == source_format:
            options = leaf.extraOptions().asCaseSensitiveMap()
            yield {str(k): str(v) for k, v in options.items()}, plain


def _leaves(rows: DataFrame) -> Iterator[tuple[Any, bool]]:
    plan = rows._jdf.queryExecution().analyzed()
    if not isinstance(plan, JavaObject):  # a session of tests that starts no Spark
        return
    found = plan.collectLeaves()
    for at in range(found.size()):
        leaf = found.apply(at)
        yield leaf, bool(leaf.equals(plan))
