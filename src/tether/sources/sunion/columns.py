"""Columns that ``tether.subscribe`` adds to the rows of exchanges."""

from __future__ import annotations

from tether.sources.exchange.log import TUPLE_TIME

INPUT, ENTRY, ROW = "_input", "_entry", "_row"
STABILITY, BUCKET, STABLE_BEFORE = "_stability", "_bucket", "_stable_before"

KINDS_DDL = f"{STABILITY} string, {BUCKET} long, {STABLE_BEFORE} long"
PLACE_DDL = f"{TUPLE_TIME} long, {INPUT} int, {ENTRY} long, {ROW} long"

SUBSCRIBED = (STABILITY, BUCKET, STABLE_BEFORE, TUPLE_TIME, INPUT, ENTRY, ROW)
