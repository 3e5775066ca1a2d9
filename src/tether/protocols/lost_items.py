"""Items that a receiver lost when it died: at most l at first, exactly once senders are back.

A receiver acknowledges items before they are durable. If it dies, those that were acknowledged and
neither processed nor backed up are lost, and no sender sends them again. Those that were *not yet*
acknowledged are not lost: their senders still hold them. The two cannot be distinguished at first, so a
loss is determined in two steps:

1. At the restart: all that had been numbered and is not safe counts as lost. That is at most l,
   for a backup comes before an acknowledgement (``tether.protocols.items``).
2. When a sender is back it sends what was not acknowledged, under its own numbers. Items that arrive
   again were not lost, and are subtracted.

**Shown items.** Some of these items had been shown to a reader before the loss. The reader may or may
not have them in its state now. If one of them arrives again it is *not* accepted, because it could be
counted twice; it stays counted as lost. So before a receiver shows items, their numbers, and the newest
number of each sender among them, must be durable; the items themselves need not be.

If the marks of numbered items did not survive (a power cut), l items count as lost. All items above the
newest one shown were at risk then, so no sender can miss more than l of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class MarkedRun(NamedTuple):
    """Items that were numbered one after the other."""

    sender: str
    first: int
    """The sender's own number of the first of them."""
    number: int
    """The receiver's number of the first of them."""
    items: int

    @property
    def last(self) -> int:
        """The receiver's number of the last of them."""
        return self.number + self.items - 1

    def sender_upto(self, number: int) -> int:
        """The sender's number of the newest of them up to a number of the receiver's."""
        return self.first - 1 + min(self.items, max(0, number - self.number + 1))


class SenderGap(msgspec.Struct, frozen=True, kw_only=True):
    """Items that one sender may still hold, by its own numbers."""

    after: int
    """Items up to this number are not among them: they are safe, or were shown to a reader."""
    marked: int
    """Its newest item that had been numbered when the receiver died."""


class LostItems(msgspec.Struct, frozen=True, kw_only=True):
    """One loss of a receiver's memory.

    Args:
        first: Smallest of the receiver's numbers that the loss may have taken.
        last: Largest of them; ``first`` - 1 if it took none.
        at_most: Most items lost, as far as it is known now. Whole, or infinite.
        gaps: By sender, what may still come again.
        known: Whether the marks survived. If not, any sender may miss up to ``at_most`` items.

    Example:
        >>> lost = after_loss(safe=4, shown=4, runs=[MarkedRun("a", 1, 1, 10)], l=100)
        >>> lost.at_most
        6
        >>> came_again(lost, "a", heard=4, first=9)[0].at_most  # 9 and 10 were not acknowledged
        4
    """

    first: int
    last: int
    at_most: float
    gaps: dict[str, SenderGap] = {}
    known: bool = True


def after_loss(
    *,
    safe: int,
    shown: int,
    runs: Iterable[MarkedRun] | None,
    l: float,  # noqa: E741 - the paper's letter
) -> LostItems:
    """Determine a loss from what is found at the restart.

    Args:
        safe: Newest of the receiver's numbers that is processed or durable, as are all before it.
        shown: Newest number that a reader may know.
        runs: Items numbered since, in order. None: the marks did not survive.
        l: The most that may have been at risk, as it was durable.
    """
    if runs is None:
        return LostItems(first=safe + 1, last=max(safe, shown), at_most=l, known=not l)
    gaps: dict[str, SenderGap] = {}
    last, taken = safe, 0
    for run in runs:
        taken += max(0, run.last - max(safe, run.number - 1))
        last = max(last, run.last)
        after = run.sender_upto(max(safe, shown))
        marked = run.first + run.items - 1
        if run.sender in gaps:
            after = max(after if run.number <= max(safe, shown) else 0, gaps[run.sender].after)
        gaps[run.sender] = SenderGap(after=after, marked=marked)
    gaps = {sender: gap for sender, gap in gaps.items() if gap.marked > gap.after}
    return LostItems(first=safe + 1, last=last, at_most=taken, gaps=gaps)


def heard_after_loss(
    heard: Mapping[str, int], safe: int, shown: int, runs: Iterable[MarkedRun]
) -> dict[str, int]:
    """By sender, the newest of its numbers that must not be accepted again.

    Args:
        heard: As it is durable.
        safe: Newest number that is processed or durable.
        shown: Newest number that a reader may know.
        runs: Numbered items, in order.

    Example:
        >>> heard_after_loss({"a": 2}, safe=2, shown=3, runs=[MarkedRun("a", 1, 1, 5)])
        {'a': 3}
    """
    known = dict(heard)
    for run in runs:
        upto = run.sender_upto(max(safe, shown))
        if upto >= run.first:
            known[run.sender] = max(upto, known.get(run.sender, 0))
    return known


def came_again(lost: LostItems, sender: str, heard: int, first: int) -> tuple[LostItems, bool]:
    """Update a loss when a sender is back and continues with ``first``.

    Args:
        lost: The loss.
        sender: The sender.
        heard: The newest of its numbers that must not be taken again.
        first: The first number that it sends now.

    Returns:
        The loss as it is known now, and whether the sender may continue there. It may not if it leaves
        out items that cannot have been acknowledged.

    Guarantee: a sender that follows the protocol continues right after its newest acknowledged item, so
    the items that it leaves out are exactly those that were lost.

    Example:
        >>> lost = after_loss(safe=4, shown=4, runs=[MarkedRun("a", 1, 1, 10)], l=100)
        >>> came_again(lost, "a", heard=4, first=12)[1]
        False
    """
    gap = lost.gaps.get(sender)
    if gap is None:
        return lost, not lost.known and first - 1 - heard <= lost.at_most
    if first > gap.marked + 1:
        return lost, False
    rest = {name: one for name, one in lost.gaps.items() if name != sender}
    back = gap.marked - max(gap.after, first - 1)
    return replace(lost, at_most=lost.at_most - back, gaps=rest), True
