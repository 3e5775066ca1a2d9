"""The item protocol of upstream backup: log, send, acknowledge, trim, replay.

Each channel numbers its items from 1. A sender makes an item durable in its log before it sends it.
A receiver drops what it has seen, and acknowledges an item only when a durable backup of its state
holds it; then the sender trims its log up to there. After a loss, the receiver asks for all that
came after its backup. A sender that was lost itself makes its outputs again as it replays its own
inputs; those whose numbers are in its log are dropped, for the log has them.

That is sound only if it makes the *same* outputs again under the same numbers. A slot that merges
channels need not, unless it takes its inputs in the same order. So each log entry also says from
which channels items were taken since the entry before, and a replay follows that order as far as it
is known; past it, nothing had been sent yet, and any order will do.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tether.protocols.item_sender import ItemsAcked, ItemsOffered, ReleaseItems, SendItems
from tether.protocols.items import Acknowledge, StateSaved, TakeItems


class Outbox(msgspec.Struct, frozen=True, kw_only=True):
    """A sender's end of a channel."""

    made: int = 0
    """Number of the newest item that the sender's state has given rise to."""
    logged: int = 0
    """Number of the newest durable item."""
    trimmed: int = 0
    """Items up to this number are gone from the log."""


class SendAgain(msgspec.Struct, frozen=True, kw_only=True, tag="send-again"):
    """The receiver asks for all items after this number, or the sender itself has come back."""

    after: int


class LogToSend(msgspec.Struct, frozen=True, kw_only=True, tag="log-to-send"):
    """Make these items durable, in one write with those of the other channels and the order."""

    first: int
    last: int


OutboxEvent = ItemsOffered | ItemsAcked | SendAgain
OutboxInstruction = LogToSend | SendItems | ReleaseItems


def send_logged(box: Outbox, event: OutboxEvent) -> tuple[Outbox, tuple[OutboxInstruction, ...]]:
    """Take one event in at the sender; give what must be done, each before the next.

    Example:
        >>> box, asked = send_logged(Outbox(), ItemsOffered(count=3))
        >>> asked
        (LogToSend(first=1, last=3), SendItems(first=1, last=3, again=False))
        >>> send_logged(Outbox(made=1, logged=3), ItemsOffered(count=3))[1][0]
        LogToSend(first=4, last=4)
        >>> send_logged(box, SendAgain(after=1))[1]
        (SendItems(first=2, last=3, again=True),)
    """
    if isinstance(event, ItemsAcked):
        upto = min(event.upto, box.logged)
        if upto <= box.trimmed:
            return box, ()
        return replace(box, trimmed=upto), (ReleaseItems(upto=upto),)
    if isinstance(event, SendAgain):
        first = max(event.after, box.trimmed) + 1
        if first > box.logged:
            return box, ()
        return box, (SendItems(first=first, last=box.logged, again=True),)
    made = box.made + event.count
    first = max(box.made, box.logged) + 1
    box = replace(box, made=made)
    if made < first:
        return box, ()
    box = replace(box, logged=made)
    return box, (LogToSend(first=first, last=made), SendItems(first=first, last=made))


def sender_restored(made: int, logged: int, trimmed: int) -> Outbox:
    """The outbox of a sender that was lost.

    Args:
        made: As stored with the backup of its state.
        logged: Number of the newest item in the durable log, or of the newest trimmed one.
        trimmed: Number of the newest item known to be trimmed.
    """
    return Outbox(made=made, logged=max(made, logged), trimmed=trimmed)


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver's ends of its channels; stored with every backup of its state."""

    seen: dict[str, int] = {}
    """Of each channel, the number of the newest item in the live state."""


class NumberedItemsCame(msgspec.Struct, frozen=True, kw_only=True, tag="numbered-items-came"):
    """Items came on a channel."""

    channel: str
    first: int
    count: int


class AskAgain(msgspec.Struct, frozen=True, kw_only=True, tag="ask-again"):
    """Items are missing in between: ask the sender for all after this number; drop what came."""

    channel: str
    after: int


InboxEvent = NumberedItemsCame | StateSaved
InboxInstruction = TakeItems | AskAgain | Acknowledge


def take_numbered(inbox: Inbox, event: InboxEvent) -> tuple[Inbox, tuple[InboxInstruction, ...]]:
    """Take one event in at the receiver; give what must be done, each before the next.

    Guarantee: every item is processed once, in its channel's order; none is acknowledged that a
    loss of the receiver could take back.

    Example:
        >>> came = NumberedItemsCame(channel="a", first=1, count=3)
        >>> inbox, asked = take_numbered(Inbox(seen={"a": 2}), came)
        >>> asked
        (TakeItems(skip=2, first=3, last=3),)
        >>> take_numbered(inbox, StateSaved())[1]
        (Acknowledge(sender='a', upto=3),)
        >>> take_numbered(inbox, NumberedItemsCame(channel="a", first=9, count=1))[1]
        (AskAgain(channel='a', after=3),)
    """
    if isinstance(event, StateSaved):
        return inbox, tuple(
            Acknowledge(sender=channel, upto=upto) for channel, upto in sorted(inbox.seen.items())
        )
    seen = inbox.seen.get(event.channel, 0)
    newest = event.first + event.count - 1
    if event.first > seen + 1:
        return inbox, (AskAgain(channel=event.channel, after=seen),)
    if newest <= seen:
        return inbox, ()
    taken = TakeItems(skip=seen + 1 - event.first, first=seen + 1, last=newest)
    return Inbox(seen={**inbox.seen, event.channel: newest}), (taken,)


def next_in_order(order: tuple[str, ...], taken: int) -> str | None:
    """The channel that a replay must take its next item from; None where any will do.

    Args:
        order: As logged since the restored backup: a channel for each item.
        taken: Items taken since then.

    Example:
        >>> next_in_order(("a", "b"), 1), next_in_order(("a", "b"), 2)
        ('b', None)
    """
    return order[taken] if taken < len(order) else None
