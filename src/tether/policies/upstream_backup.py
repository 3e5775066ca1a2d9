"""Upstream backup as a policy (Hwang 2005, as AF-Stream 2019 §6.1.1 compares with it)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.policies.base import BasePolicy
from tether.policies.events import EpochApplied, Event, RowsReady
from tether.policies.instructions import BackUpState, Instruction, LogRows
from tether.policies.memory import SlotPolicyState
from tether.policies.recovery import REPLAY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.placement import Placement
    from tether.policies.recovery import Recovery


class UpstreamState(SlotPolicyState, frozen=True, kw_only=True):
    """What the policy remembers of a slot."""

    items_saved: int = 0
    """Rows taken in as of the newest backup of the state."""


@dataclass(frozen=True, slots=True)
class UpstreamBackup(BasePolicy):
    """Log every item durably before it is processed; back up the state at intervals.

    Intuition: only a lost slot goes back. It restores its last backup and gets the items since then
    again, from the log. Other slots are not affected. The price is paid for every item.

    Guarantee: exact, even if the source cannot be read again, because the rows of every epoch are
    durable before they are processed. Logged rows are deleted only when a committed backup of the state
    contains their effect (:mod:`tether.backup.retention`).

    Args:
        state_every: Fraction of the items after which the state is backed up: 0.01 means after every
            1 % of them, as in AF-Stream 2019 §6.1.1.
        of_items: The number of items that this fraction refers to: all items that a slot will get, if
            that is known. None: the items that it has had so far.
        most_items: Largest number of items between two backups of the state, even if the fraction is
            more. Without it, an endless stream would have more and more to replay.

    Example:
        >>> from tether.core.placement import Placement
        >>> policy = UpstreamBackup(of_items=1000)
        >>> policy.step(policy.initial(), RowsReady(epoch=1, items=9), Placement())[1]
        (LogRows(epoch=1),)
        >>> state, asked = policy.step(
        ...     policy.initial(), EpochApplied(epoch=1, divergence=3.0, items=9), Placement())
        >>> asked
        ()
        >>> policy.step(state, EpochApplied(epoch=2, divergence=4.0, items=1), Placement())[1]
        (BackUpState(target=0.0, cause='every-items', wait=True, rounding=0.0),)
    """

    state_every: float = 0.01
    _: KW_ONLY
    of_items: int | None = None
    most_items: int = 1_000_000

    def __post_init__(self) -> None:
        part = amount(
            "state_every", self.state_every, unit="parts of all items", zero=None, infinite=None
        )
        object.__setattr__(self, "state_every", part)
        if part > 1:
            raise BadValueError(
                f"state_every={part:g} is more than all items.",
                why="It is a part of them: 0.01 is 1 %.",
                do="Give a number above 0 and at most 1.",
            )
        if self.of_items is not None:
            object.__setattr__(self, "of_items", count("of_items", self.of_items, unit="items"))
        object.__setattr__(self, "most_items", count("most_items", self.most_items, unit="items"))

    state_type: ClassVar[type[UpstreamState]] = UpstreamState
    about: ClassVar[str] = (
        "Every row is durable before it is used, and is used again after a loss: exact."
    )

    @property
    def name(self) -> str:
        """Word by which the policy is known."""
        return "upstream-backup"

    @property
    def recovery(self) -> Recovery:
        """The lost slot goes back to its own backup; logged rows since are given to it again."""
        return REPLAY

    def describe(self) -> Mapping[str, object]:
        """Settings as plain values."""
        return {
            "policy": self.name,
            "state_every": self.state_every,
            "of_items": self.of_items,
            "most_items": self.most_items,
        }

    def threshold(self, state: UpstreamState, placement: Placement) -> float:  # noqa: ARG002
        """Infinite: what is not in a backup is replayed, however much it is."""
        return math.inf

    def due(self, items: int, saved: int) -> bool:
        """Whether the state must be backed up.

        Args:
            items: Items that the slot has taken in so far.
            saved: How many of them its newest backup holds.

        Example:
            >>> UpstreamBackup(0.5).due(items=100, saved=51)
            False
            >>> UpstreamBackup(0.5).due(items=102, saved=51)
            True
        """
        whole = items if self.of_items is None else self.of_items
        return items > saved and items - saved >= min(self.state_every * whole, self.most_items)

    def step(
        self,
        state: UpstreamState,
        event: Event,
        placement: Placement,  # noqa: ARG002
    ) -> tuple[UpstreamState, tuple[Instruction, ...]]:
        """Take one event in; give the new state and what the runtime must do, in order."""
        if isinstance(event, RowsReady) and event.items:
            return state, (LogRows(epoch=event.epoch),)
        if isinstance(event, EpochApplied):
            state = self.counting(state, event)
            if self.due(state.items, state.items_saved):
                state = replace(state, items_saved=state.items)
                return state, (BackUpState(target=0.0, cause="every-items"),)
            return state, ()
        return self.usual(state, event)
