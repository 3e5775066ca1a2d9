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
    from tether.simulate.epochs import EpochScenario

EpochFaultKind = Literal[
    "state",
    "node",
    "halfway",
    "after-apply",
    "during-backup",
    "during-recovery",
    "after-commit",
    "driver",
    "driver-before-record",
]
"""``state``, ``node``: resident state is gone before the epoch. ``driver``: it dies after the epoch's
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
"""How often each kind comes up in a drawn schedule."""


class EpochFault(NamedTuple):
    """One thing that goes wrong."""

    kind: EpochFaultKind
    epoch: Epoch
    slot: SlotId = SlotId("", Slot(0))


def draw_epoch_faults(scenario: EpochScenario, failures: int) -> list[EpochFault]:
    """That many faults over the epochs, from the scenario's seed."""
    count("failures", failures, unit="failures", least=0)
    dice = np.random.default_rng([scenario.seed, 3])
    kinds = list(SHARES)
    drawn = dice.choice(len(kinds), size=failures, p=list(SHARES.values()))
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
    """

    def __init__(self, faults: Iterable[EpochFault], slots_per_node: int = 8) -> None:
        self._waiting: dict[tuple[str, SlotId], set[int]] = {}
        self._lost: dict[int, set[SlotId]] = {}
        self.struck: Counter[str] = Counter()
        for fault in faults:
            if fault.kind == "node":
                first = fault.slot.slot // slots_per_node * slots_per_node
                node = [
                    SlotId(fault.slot.operator, Slot(first + at)) for at in range(slots_per_node)
                ]
                self._lost.setdefault(fault.epoch, set()).update(node)
                continue
            if fault.kind in ("state", "during-recovery"):  # there must be one to die in
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

    def __call__(self, point: Point, operator: str, slot: Slot, epoch: Epoch) -> bool:
        """A task, or the driver with slot AT_DRIVER, has come to a point."""
        key = (point, SlotId(operator, slot))
        due = self._waiting.get(key)
        if not due or min(due) > epoch:
            return False
        due.discard(min(due))
        self.struck[point] += 1
        raise DriverKilled(point) if slot < 0 else TaskKilled(point)
