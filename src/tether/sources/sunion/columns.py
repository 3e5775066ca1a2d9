"""Columns that ``tether.subscribe`` adds to the rows of exchanges."""

from __future__ import annotations

from tether.sources.exchange.log import TUPLE_TIME

INPUT, ENTRY, ROW = "_input", "_entry", "_row"
STABILITY, BUCKET, STABLE_BEFORE = "_stability", "_bucket", "_stable_before"

KINDS = {STABILITY: "string", BUCKET: "long", STABLE_BEFORE: "long"}
PLACES = {TUPLE_TIME: "long", INPUT: "integer", ENTRY: "long", ROW: "long"}
"""Columns and their types, in Spark's words."""

SUBSCRIBED = (*KINDS, *PLACES)
