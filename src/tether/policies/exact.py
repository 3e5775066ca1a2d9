"""What the exact policies have in common: nothing may be lost, so there is nothing to divide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.core.budget import Budget
from tether.policies.memory import SlotPolicyState

if TYPE_CHECKING:
    from tether.policies.policy import SnapshotSchedule


class ExactPolicy:
    """Base of policies after whose recoveries the answer is that of a run without failures.

    Example:
        >>> ExactPolicy().budget.max_state_error
        0.0
    """

    __slots__ = ()

    @property
    def keeps_backups(self) -> bool:
        """True: state is backed up."""
        return True

    @property
    def snapshots(self) -> SnapshotSchedule | None:
        """It takes none."""
        return None

    @property
    def budget(self) -> Budget:
        """Nothing may be lost."""
        return Budget()

    def initial(self) -> SlotPolicyState:
        """State of a slot that has never failed."""
        return SlotPolicyState()
