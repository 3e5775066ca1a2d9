"""Frames that the driver itself writes: items between epochs, such as feedback that is in flight."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tether.backup.frames import FrameHeader
from tether.core.ids import DRIVERS, Epoch, Failures, FrameNumber, Lineage

if TYPE_CHECKING:
    from tether.policies.instructions import Cause

ITEMS = "items"
"""Name of the part that holds them."""


def items_header(
    name: str,
    *,
    query: str,
    run: str,
    epoch: Epoch,
    sequence: FrameNumber,
    entries: int,
    cause: Cause = "items",
) -> FrameHeader:
    """Head of a frame of items: they are no state, so no divergence goes with them.

    Args:
        name: Under which they are stored.
        query: Id of the query.
        run: Id of this driver's run.
        epoch: The epoch that sent them.
        sequence: Rises with every such frame.
        entries: How many they are.
        cause: Why they are written.
    """
    return FrameHeader(
        query=query,
        operator=name,
        slot=DRIVERS,
        epoch=epoch,
        sequence=sequence,
        failures=Failures(0),
        kind="items",
        cause=cause,
        attempt=f"{run}-{time.monotonic_ns()}",
        lineage=Lineage(run),
        divergence_before=0.0,
        divergence_after=0.0,
        carried=0.0,
        entries=entries,
        written_at=time.time(),
    )
