"""The planner that looks at single slots (PPA 2016 algorithm 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tether.planning.model import Model
    from tether.planning.streams import Flags
    from tether.planning.topology import Topology


class Greedy:
    """Chooses the slots whose failure alone would hurt most.

    Fast, and blind to whether the chosen slots form complete trees: with few copies there is often no
    output at all. Of slots that hurt equally, the first are chosen.

    Args:
        topology: The topology.
        model: Its model.
    """

    def __init__(self, topology: Topology, model: Model) -> None:
        del topology
        each_lost = ~np.eye(model.size, dtype=bool)
        self._place = np.argsort(np.argsort(model.values(each_lost), kind="stable"))

    def choose(self, copies: int) -> Flags:
        """The slots of a plan with this number of copies."""
        chosen: Flags = self._place < copies
        return chosen
