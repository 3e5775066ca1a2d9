"""Which resident states are valid: every restored state gets a lineage of its own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from tether.core.ids import GENESIS, Epoch, Lineage, Slot, each_slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.backup.history import CommitHistory
    from tether.core.graph import SlotId
    from tether.engine.messages import SlotStatus
    from tether.engine.operators import QueryOperator
    from tether.engine.query.catching_up import CatchUp


class Lineages:
    """The lineage that each slot's resident state must have, where it is not GENESIS.

    Args:
        operators: The operators.
        known: False after an earlier run that recorded nothing: until slots report, any lineage is
            accepted.
    """

    def __init__(self, operators: Iterable[QueryOperator], *, known: bool = True) -> None:
        self._by_operator: dict[str, dict[Slot, Lineage]] = {one.name: {} for one in operators}
        self._known = known
        self._saved_at: Epoch | None = None

    def expected(self, operator: str) -> dict[Slot, Lineage] | None:
        """The expected lineages of an operator, by slot; None where any lineage is accepted."""
        return self._by_operator[operator] if self._known else None

    def readable(self, operator: str, epoch: Epoch) -> dict[Slot, Lineage] | None:
        """The same for readers of the state as of an epoch."""
        return None if epoch == self._saved_at else self.expected(operator)

    def saved(self, epoch: Epoch) -> None:
        """All states were saved as of an epoch, each under a new lineage.

        Resident states still have the old lineages: they may be read, but the next epoch restores its
        states from the backup.
        """
        self._saved_at = epoch

    def resume(
        self, history: CommitHistory, operators: Iterable[QueryOperator], epoch: Epoch
    ) -> None:
        """Load the recorded lineages of slots that run ``epoch`` next."""
        for one in operators:
            facts = {
                slot: history.slot_facts(one.name, slot, epoch) for slot in each_slot(one.slots)
            }
            self._by_operator[one.name] = {s: f.lineage for s, f in facts.items() if f.lineage}

    def learn(self, statuses: Mapping[SlotId, SlotStatus]) -> None:
        """Note the lineages that all slots have reported."""
        self._known = True
        for (operator, slot), status in statuses.items():
            if status.lineage != GENESIS:
                self._by_operator[operator][slot] = status.lineage

    def distrust_slots(self, slots: Iterable[SlotId]) -> None:
        """Let these slots restore their state, whatever is resident."""
        lineage = Lineage(f"lost-{uuid.uuid4().hex}")
        for slot in slots:
            self._by_operator[slot.operator][slot.slot] = lineage

    def take_over(self, operator: str, lineages: Mapping[Slot, Lineage]) -> None:
        """Copies speak for these slots from now on, with states of these lineages."""
        self._by_operator[operator] |= lineages

    def distrust(self, operators: Iterable[QueryOperator], but: CatchUp | None = None) -> None:
        """Let all slots but those that stay restore their state, whatever is resident."""
        # No resident state has such a lineage, so none is accepted.
        lineage = Lineage(f"rewound-{uuid.uuid4().hex}")
        self._known = True
        for one in operators:
            stay = frozenset[Slot]() if but is None else but.kept(one.name, one.slots)
            goes = (slot for slot in each_slot(one.slots) if slot not in stay)
            self._by_operator[one.name] |= dict.fromkeys(goes, lineage)
