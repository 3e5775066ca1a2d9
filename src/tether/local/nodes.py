"""Nodes of a simulated cluster: where seats are, and what is lost with a node.

A node that died is replaced by an empty one of the same name, some epochs later; until then its seats
run on other nodes, as on Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tether.core.ids import Epoch


class Nodes:
    """A number of nodes in racks; the last nodes stand by.

    Args:
        number: Number of nodes.
        racks: Number of racks; node i is in rack i modulo racks. Nodes that stand by are in none of
            them.
        standby: Number of nodes that stand by: they hold copies only.
        down: Epochs after which a node that died is replaced.

    Example:
        >>> nodes = Nodes(5, racks=2, standby=1)
        >>> nodes.rack(0), nodes.standing_by
        (('n0', 'n2'), ('n4',))
        >>> nodes.places(2, 1)
        ['n0', 'n1', 'n4']
    """

    def __init__(self, number: int, *, racks: int = 1, standby: int = 0, down: int = 3) -> None:
        names = [f"n{node}" for node in range(number)]
        self._working, self.standing_by = (
            names[: number - standby],
            tuple(names[number - standby :]),
        )
        self._racks, self._down = racks, down
        self._dead: dict[str, int] = {}
        """Nodes that are dead, and the epoch at which each is replaced."""
        self._lives: dict[str, int] = {}

    def rack(self, number: int) -> tuple[str, ...]:
        """The nodes of a rack."""
        return tuple(self._working[number % self._racks :: self._racks])

    @property
    def working(self) -> tuple[str, ...]:
        """All nodes that slots speak from."""
        return tuple(self._working)

    @property
    def alive(self) -> int:
        """Number of nodes that are alive."""
        return len(self._working) + len(self.standing_by) - len(self._dead)

    def places(self, slots: int, copies: int) -> list[str]:
        """The node of each seat: slots in turn; copies on standby, or half a turn away."""
        working = self._alive(self._working) or self._alive(self.standing_by)
        spare = self._alive(self.standing_by)
        spoken = [working[slot % len(working)] for slot in range(slots)]
        if spare:
            return spoken + [spare[copy % len(spare)] for copy in range(copies)]
        half = len(working) // 2
        return spoken + [working[(half + copy) % len(working)] for copy in range(copies)]

    def instead_of(self, place: str, seat: int) -> str:
        """The node that a seat runs on: its own, or another one while its own is dead."""
        if place not in self._dead:
            return place
        left = self._alive(self._working) or self._alive(self.standing_by)
        return left[seat % len(left)]

    def executor(self, place: str) -> str:
        """The name of a node's executor; a new one after each replacement."""
        return f"{place}.{self._lives.get(place, 0)}"

    def kill(self, names: Collection[str], epoch: Epoch) -> None:
        """Nodes die before an epoch."""
        for name in names:
            self._dead[name] = epoch + self._down
            self._lives[name] = self._lives.get(name, 0) + 1
        if not self.alive:  # slots must run somewhere, so dead nodes are replaced at once
            self._dead.clear()

    def replace(self, epoch: Epoch) -> None:
        """At the beginning of an epoch, replace nodes that have been dead long enough by empty ones."""
        self._dead = {name: until for name, until in self._dead.items() if until > epoch}

    def _alive(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self._dead]
