"""The sender's side of item backup (AF-Stream 2019 §3.4.2): at most γ unacknowledged items.

A sender keeps what it has sent until the receiver acknowledges it, and loses that if it dies. So it
stops at γ. Taken literally a γ below 1, which halving reaches after a few failures, would stop it
for ever. Tether keeps it going, and exact: one item may then be under way, but it is *accepted*
only when it is acknowledged. Until then its sender still has it, and nothing is at risk.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace


class SenderState(msgspec.Struct, frozen=True, kw_only=True):
    """All that a sender remembers. A sender that restarts takes a new name, and numbers from 1.

    Example:
        >>> SenderState(sent=5, accepted=5, acked=3).at_risk
        2
    """

    sent: int = 0
    """Number of the newest item sent; numbered from 1."""
    accepted: int = 0
    """Number of the newest item that its sender may forget."""
    acked: int = 0
    """Number of the newest item that the receiver has acknowledged."""

    @property
    def at_risk(self) -> int:
        """Items that a loss of the sender now would lose: accepted and not acknowledged."""
        return max(0, self.accepted - self.acked)

    @property
    def unacked(self) -> int:
        """Items sent and not acknowledged: to be held in memory."""
        return self.sent - self.acked


class ItemsOffered(msgspec.Struct, frozen=True, kw_only=True, tag="items-offered"):
    """Items are there to be sent."""

    count: int


class ItemsAcked(msgspec.Struct, frozen=True, kw_only=True, tag="items-acked"):
    """The receiver has everything up to this number."""

    upto: int


class ReceiverBack(msgspec.Struct, frozen=True, kw_only=True, tag="receiver-back"):
    """The receiver was lost, or the line to it, and is there again."""


SenderEvent = ItemsOffered | ItemsAcked | ReceiverBack


class SendItems(msgspec.Struct, frozen=True, kw_only=True, tag="send-items"):
    """Send these, both ends included, and keep them in memory."""

    first: int
    last: int
    again: bool = False
    """Whether they were sent before; the receiver leaves out what it has."""


class AcceptItems(msgspec.Struct, frozen=True, kw_only=True, tag="accept-items"):
    """Tell their sender that everything up to this number is safe."""

    upto: int


class ReleaseItems(msgspec.Struct, frozen=True, kw_only=True, tag="release-items"):
    """Items up to this number need no longer be held in memory."""

    upto: int


class WaitForAcks(msgspec.Struct, frozen=True, kw_only=True, tag="wait-for-acks"):
    """This number of the offered items cannot go yet: offer them again after an acknowledgement."""

    count: int


SenderInstruction = SendItems | AcceptItems | ReleaseItems | WaitForAcks


def send(
    state: SenderState, event: SenderEvent, gamma: float, window: int = 1
) -> tuple[SenderState, tuple[SenderInstruction, ...]]:
    """Take one event in; give the new state and what must be done, in order.

    Guarantee: at most ``gamma`` items are at risk, and the sender never stops for good while
    acknowledgements come.

    Args:
        state: The sender's.
        event: What happened.
        gamma: Most items that may be unacknowledged now: ``Thresholds.gamma``.
        window: With a ``gamma`` below 1, most items that may be under way without being accepted.

    Example:
        >>> send(SenderState(), ItemsOffered(count=5), 3)[1]
        (SendItems(first=1, last=3, again=False), AcceptItems(upto=3), WaitForAcks(count=2))
        >>> waiting, asked = send(SenderState(), ItemsOffered(count=5), 0)
        >>> asked
        (SendItems(first=1, last=1, again=False), WaitForAcks(count=4))
        >>> send(waiting, ItemsAcked(upto=1), 0)[1]
        (ReleaseItems(upto=1), AcceptItems(upto=1))
    """
    if isinstance(event, ReceiverBack):
        if not state.unacked:
            return state, ()
        return state, (SendItems(first=state.acked + 1, last=state.sent, again=True),)
    done: list[SenderInstruction] = []
    if isinstance(event, ItemsAcked):
        acked = min(max(state.acked, event.upto), state.sent)
        if acked > state.acked:
            done.append(ReleaseItems(upto=acked))
            state = replace(state, acked=acked)
    else:
        room = max(0, (gamma if gamma >= 1 else window) - state.unacked)
        going = event.count if math.isinf(room) else min(event.count, math.floor(room))
        if going:
            done.append(SendItems(first=state.sent + 1, last=state.sent + going))
            state = replace(state, sent=state.sent + going)
    allowed = state.sent if gamma >= 1 else state.acked
    if allowed > state.accepted:
        done.append(AcceptItems(upto=allowed))
        state = replace(state, accepted=allowed)
    if isinstance(event, ItemsOffered) and going < event.count:
        done.append(WaitForAcks(count=event.count - going))
    return state, tuple(done)
