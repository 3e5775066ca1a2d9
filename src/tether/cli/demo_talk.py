"""What the demo and its jobs tell each other: needs no Spark, for every command loads it."""

from __future__ import annotations

import json
import tempfile
from typing import Any, NamedTuple

import msgspec

SLOTS = 2
"""Cores, and slots, or Spark's state partitions."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is told.

    Args:
        name: "tether" or "spark".
        source: Folder of the stream's files.
        work: The job's own folder.
        epochs: Number of files.
        latency: Seconds that a request to the store takes.
        bound: Θ.
        snapshot_every: Epochs between two exact states that healing can start from.
        port: For the live page; None: there is none.
    """

    name: str
    source: str
    work: str
    epochs: int
    latency: float
    bound: float
    snapshot_every: int
    port: int | None = None


class EpochEnd(NamedTuple):
    """When an epoch was over, and how long it took."""

    epoch: int
    at: float
    """Unix seconds."""
    ms: float


def tell(event: str, **facts: Any) -> None:
    """One line to the parent."""
    print(json.dumps({"event": event, **facts}), flush=True)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for one demo; gone with it."""
    return tempfile.TemporaryDirectory(prefix="tether-demo-")
