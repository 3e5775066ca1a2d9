"""The best plan there is, by linear programming; not in the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.planning.optimum import Optimum

if TYPE_CHECKING:
    from tether.planning.model import Model
    from tether.planning.streams import Flags
    from tether.planning.topology import Topology


class Optimal:
    """Finds the best plan; see :mod:`tether.planning.programme`. Needs the extra ``plan``.

    Args:
        topology: The topology.
        model: Its model.
    """

    def __init__(self, topology: Topology, model: Model) -> None:
        del topology
        self._optimum = Optimum(model)

    def choose(self, copies: int) -> Flags:
        """The slots of a plan with this number of copies."""
        return self._optimum.best(copies)
