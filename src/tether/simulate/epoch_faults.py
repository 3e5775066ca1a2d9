"""What goes wrong in a simulation in epochs: drawn from a seed, or written down by hand."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tether.core.checks import count
from tether.core.graph import SlotId
from tether.core.ids import Epoch, Slot
from tether.local.cluster import AT_DRIVER, DriverKilled, TaskKilled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.chaos.faults import Point
    from tether.local.nodes import Nodes
    from tether.simulate.epoch_query import EpochScenario

EpochFaultKind = Literal[
    "state",
    "node",
    "rack",
    "all-but-standby",
    "halfway",
    "after-apply",
    "during-backup",
    "during-recovery",
    "after-commit",
    "driver",
    "driver-before-record",
]
"""``state``, ``node``: resident state is gone before the epoch. ``rack``, ``all-but-standby``: so is
that of many nodes at once; where there are no racks, as ``node``. ``driver``: it dies after the epoch's
record and before the host's commit; ``driver-before-record``: when all slots have finished, before it.
The others: the slot's task is killed at that point of the protocol."""

SHARES: dict[EpochFaultKind, float] = {
    "state": 0.40,
    "node": 0.04,
    "halfway": 0.14,
    "after-apply": 0.10,
    "during-backup": 0.10,
    "during-recovery": 0.10,
    "after-commit": 0.10,
    "driver": 0.01,
    "driver-before-record": 0.01,
}
"""The share of each kind in a drawn schedule."""


CORRELATED: dict[EpochFaultKind, float] = {"node": 0.5, "rack": 0.4, "all-but-standby": 0.1}
"""The same, where slots have copies on nodes in racks."""


class EpochFault(NamedTuple):
    """One thing that goes wrong."""

    kind: EpochFaultKind
    epoch: Epoch
    slot: SlotId = SlotId("", Slot(0))


def draw_epoch_faults(scenario: EpochScenario, failures: int) -> list[EpochFault]:
    """That many faults over the epochs, from the scenario's seed."""
    count("failures", failures, unit="failures", least=0)
    dice = np.random.default_rng([scenario.seed, 3])
    shares = SHARES if scenario.nodes is None else CORRELATED
    kinds = list(shares)
    drawn = dice.choice(len(kinds), size=failures, p=list(shares.values()))
    return [
        EpochFault(
            kinds[which],
            Epoch(int(dice.integers(1, max(2, scenario.epochs)))),
            SlotId(
                scenario.names[int(dice.integers(scenario.operators))],
                Slot(int(dice.integers(scenario.copies))),
            ),
        )
        for which in drawn
    ]


class Striking:
    """Lets faults strike, each once; see ``StruckProgram``.

    Args:
        faults: What goes wrong.
        slots_per_node: Slots that a node's failure takes, of each operator.
        nodes: Where there are nodes: a failure takes these.
    """

    def __init__(
        self,
        faults: Iterable[EpochFault],
        slots_per_node: int = 8,
        nodes: Nodes | None = None,
    ) -> None:
        self._waiting: dict[tuple[str, SlotId], set[int]] = {}
        self._lost: dict[int, set[SlotId]] = {}
        self._lost_nodes: dict[int, set[str]] = {}
        self.struck: Counter[str] = Counter()
        for fault in faults:
            if nodes is not None and fault.kind in CORRELATED:
                self._lost_nodes.setdefault(fault.epoch, set()).update(_taken(fault, nodes))
                continue
            if fault.kind in CORRELATED:
                first = fault.slot.slot // slots_per_node * slots_per_node
                node = [
                    SlotId(fault.slot.operator, Slot(first + at)) for at in range(slots_per_node)
                ]
                self._lost.setdefault(fault.epoch, set()).update(node)
                continue
            if fault.kind in ("state", "during-recovery"):  # so that there is a recovery
                self._lost.setdefault(fault.epoch, set()).add(fault.slot)
            if fault.kind != "state":
                at_driver = {"driver-before-record": "after-job", "driver": "before-spark-commit"}
                slot = SlotId("", AT_DRIVER) if fault.kind in at_driver else fault.slot
                point = at_driver.get(fault.kind, fault.kind)
                self._waiting.setdefault((point, slot), set()).add(fault.epoch)

    def lost_before(self, epoch: Epoch) -> set[SlotId]:
        """Slots whose resident state is gone when an epoch begins."""
        lost = self._lost.pop(epoch, set())
        self.struck["before-epoch"] += len(lost)
        return lost

    def nodes_before(self, epoch: Epoch) -> set[str]:
        """Nodes that are dead when an epoch begins."""
        lost = self._lost_nodes.pop(epoch, set())
        self.struck["nodes"] += len(lost)
        return lost

    def __call__(self, point: Point, operator: str, slot: Slot, epoch: Epoch) -> bool:
        """A task, or the driver with slot AT_DRIVER, has come to a point."""
        key = (point, SlotId(operator, slot))
        due = self._waiting.get(key)
        if not due or min(due) > epoch:
            return False
        due.discard(min(due))
        self.struck[point] += 1
        raise DriverKilled(point) if slot < 0 else TaskKilled(point)


def _taken(fault: EpochFault, nodes: Nodes) -> tuple[str, ...]:
    """The nodes that a failure takes."""
    if fault.kind == "all-but-standby":
        return nodes.working
    if fault.kind == "rack":
        return nodes.rack(fault.slot.slot)
    return (nodes.working[fault.slot.slot % len(nodes.working)],)
