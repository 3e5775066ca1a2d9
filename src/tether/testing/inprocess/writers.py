"""Threads that write while epochs go on: waiting until each has come as far as it can."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tether.chaos.faults import is_holding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.chaos.faults import Fault

WRITER = "tether-part-"
"""How the names of such threads begin."""


def settle_writers(faults: Iterable[Fault], seconds: float = 10.0) -> None:
    """Return when all writers of this process have ended, but for those that a fault holds."""
    holds = [fault for fault in faults if fault.action == "hold"]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        writing = sum(thread.name.startswith(WRITER) for thread in threading.enumerate())
        if writing <= sum(map(is_holding, holds)):
            return
        time.sleep(0.001)
