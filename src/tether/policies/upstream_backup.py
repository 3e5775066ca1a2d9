"""Upstream backup as a policy (Hwang 2005, as AF-Stream 2019 §6.1.1 compares with it)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.policies.events import BackupCounts, EpochApplied, Event, Flushed, Recovered, RowsReady
from tether.policies.exact import ExactPolicy
from tether.policies.instructions import BackUpState, Instruction, LogRows, RecordFailures, TrimRows
from tether.policies.recovery import REPLAY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.core.placement import Placement
    from tether.policies.memory import SlotPolicyState
    from tether.policies.recovery import Recovery


@dataclass(frozen=True, slots=True)
class UpstreamBackup(ExactPolicy):
    """Make every item durable at its sender before it is sent on; back up state now and then.

    Intuition: a lost slot alone goes back, to its own last backup, and is given again just what it
    had been given since. Nobody else notices. The price is paid on every item.

    Guarantee: exact, also with a source that cannot be read again, for the rows of every epoch are
    durable before anybody processes them. An item is acknowledged, and its log trimmed, only when
    a durable backup of the receiver's state holds it.

    Args:
        state_every: Part of the items after which the state is backed up: 0.01 is after every 1 %
            of them, as in AF-Stream 2019 §6.1.1.
        of_items: Number of items that the part is of: those that a slot gets in all, where it is
            known. None: those it has had so far.
        most_items: Most items between two backups of the state, whatever the part comes to; an
            endless stream would else have ever more to replay.

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
        (BackUpState(target=0.0, cause='every-items', wait=True),)
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

    def threshold(self, state: SlotPolicyState, placement: Placement) -> float:  # noqa: ARG002
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
        state: SlotPolicyState,
        event: Event,
        placement: Placement,  # noqa: ARG002
    ) -> tuple[SlotPolicyState, tuple[Instruction, ...]]:
        """Take one event in; give the new state and what the runtime must do, in order."""
        asked: tuple[Instruction, ...] = ()
        if isinstance(event, RowsReady) and event.items:
            asked = (LogRows(epoch=event.epoch),)
        elif isinstance(event, EpochApplied):
            state = replace(state, items=state.items + event.items)
            if self.due(state.items, state.items_saved):
                state = replace(state, items_saved=state.items)
                asked = (BackUpState(target=0.0, cause="every-items"),)
        elif isinstance(event, BackupCounts):
            asked = (TrimRows(upto=event.epoch),)
        elif isinstance(event, Flushed):
            asked = (BackUpState(target=0.0, cause="flush"),)
        elif isinstance(event, Recovered):
            state = replace(state, failures=state.failures + 1)
            asked = (RecordFailures(failures=state.failures, state=state),)
        return state, asked
