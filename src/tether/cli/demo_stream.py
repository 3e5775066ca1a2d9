"""The demo's stream, and how its job speaks to the demo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.testing.epochs import read_epochs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOTS = 2


def words(session: SparkSession, source: str) -> DataFrame:
    """The demo's files as a stream, one an epoch."""
    return read_epochs(session, Path(source), "word string")


def tell(event: str, **facts: Any) -> None:
    """One line to the parent."""
    print(json.dumps({"event": event, **facts}), flush=True)
