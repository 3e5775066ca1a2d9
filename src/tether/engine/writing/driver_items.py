"""Frames that the driver writes: items between epochs, such as feedback in flight."""

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
    """Header of a frame of items. Items are not state, so it has no divergence.

    Args:
        name: The name that they are stored under.
        query: Id of the query.
        run: Id of this driver's run.
        epoch: The epoch that sent them.
        sequence: Increases with every such frame.
        entries: Number of items.
        cause: Reason for the frame.
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
