"""Both ends of a logged channel, step by step."""

from __future__ import annotations

from tether.protocols.item_sender import ItemsAcked, ItemsOffered, ReleaseItems, SendItems
from tether.protocols.items import Acknowledge, StateSaved, TakeItems

from .upstream_items import (
    AskAgain,
    Inbox,
    LogToSend,
    NumberedItemsCame,
    Outbox,
    SendAgain,
    next_in_order,
    send_logged,
    sender_restored,
    take_numbered,
)


def came(first: int, count: int) -> NumberedItemsCame:
    return NumberedItemsCame(channel="a", first=first, count=count)


def test_only_what_is_durable_is_trimmed() -> None:
    box, asked = send_logged(Outbox(made=3, logged=3), ItemsAcked(upto=9))
    assert (box.trimmed, asked) == (3, (ReleaseItems(upto=3),))
    assert send_logged(box, ItemsAcked(upto=2))[1] == ()


def test_a_sender_that_is_back_makes_known_items_again_and_logs_only_new_ones() -> None:
    box = sender_restored(made=1, logged=3, trimmed=0)
    assert (box.made, box.logged) == (1, 3)
    box, asked = send_logged(box, ItemsOffered(count=2))
    assert asked == ()  # 2 and 3 are in the log
    box, asked = send_logged(box, ItemsOffered(count=2))
    assert asked == (LogToSend(first=4, last=5), SendItems(first=4, last=5))
    assert send_logged(box, SendAgain(after=4))[1] == (SendItems(first=5, last=5, again=True),)


def test_every_item_is_taken_once_and_in_order() -> None:
    inbox, asked = take_numbered(Inbox(seen={"a": 2}), came(1, 4))
    assert asked == (TakeItems(skip=2, first=3, last=4),)
    assert take_numbered(inbox, came(3, 2))[1] == ()
    assert take_numbered(inbox, came(6, 1)) == (inbox, (AskAgain(channel="a", after=4),))
    assert take_numbered(inbox, StateSaved())[1] == (Acknowledge(sender="a", upto=4),)


def test_a_replay_merges_as_before() -> None:
    assert [next_in_order(("a", "b"), taken) for taken in range(3)] == ["a", "b", None]
