"""A sliding window as a ring of panes: which ones it holds now, and which have just left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.core.errors import BadValueError
from tether.operator import DURABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tether.state.slot import SlotState
    from tether.state.table import Table


class Panes:
    """The last ``count`` panes of a stream; pane number n lies in place n mod ``count``.

    The numbers are made durable whenever they change, once a pane: else a slot that comes back
    could not tell which pane its backup's numbers belong to.

    Args:
        state: The slot's state.
        count: Panes in the window.
    """

    def __init__(self, state: SlotState, count: int) -> None:
        self._count = count
        # One more than the newest pane, so that the 0 of a new vector means none.
        self._next = state.vector(
            "pane", 1, dtype="int64", divergence="max", weights={"value": DURABLE}
        )

    @property
    def newest(self) -> int:
        """Number of the newest pane; -1 before the first."""
        return int(self._next.values[0]) - 1

    def in_window(self, panes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows are of a pane that is in the window, or newer."""
        return panes > self.newest - self._count

    def advance(self, newest: int) -> list[int]:
        """Let the window reach up to ``newest``; give the places of panes that have left it."""
        before = self.newest
        if newest <= before:
            return []
        self._next.put([0], [newest + 1])
        gone = min(newest - before, self._count)
        return [(newest - back) % self._count for back in range(gone)]


def check_window(panes: int, pane: float) -> None:
    """Refuse what cannot be a window.

    Raises:
        BadValueError: No panes, or panes without length.
    """
    if panes < 1 or not pane > 0:
        raise BadValueError(
            f"A window of {panes} panes of length {pane} cannot be made.",
            do="Give at least one pane, of a length above 0.",
        )


def drop_dead_rows(table: Table, alive: NDArray[np.bool_], *, least: int = 4096) -> None:
    """Rebuild a table without its dead rows, once they are most of it.

    So its cost is spread over as many rows as it takes out.
    """
    if len(alive) < least or 2 * np.count_nonzero(alive) > len(alive):
        return
    kept = table.rows_to_batch(np.flatnonzero(alive))
    keys = table.key_schema.names
    table.clear()
    values = {name: kept[name] for name in kept.schema.names if name not in keys}
    table.put(kept.select(keys), unique=True, **values)
