"""Acknowledgements that go together: none is lost, none comes after the end."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from tether.sources.gateway import acks
from tether.sources.gateway.acks import AckLine, Reminder
from tether.sources.gateway.messages import Ack

if TYPE_CHECKING:
    from collections.abc import Callable


class Written:
    """What a producer would see."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def write(self, text: bytes) -> None:
        told: dict[str, Any] = json.loads(text)
        self.seen.append((told["ack_up_to_offset"], told.get("rows", 0)))


class ByHand(Reminder):
    """Calls back when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Callable[[], None]] = []

    def ask(self, call: Callable[[], None]) -> None:
        self.asked.append(call)


def test_the_first_goes_at_once_and_those_after_it_together(monkeypatch: Any) -> None:
    monkeypatch.setattr(acks, "HELD_SECONDS", 600)  # however slow the machine is
    writer, reminder = Written(), ByHand()
    line = AckLine(writer, reminder)
    for upto in (5, 10, 15):
        line.send(Ack(ack_up_to_offset=upto, rows=5))
    assert writer.seen == [(5, 5)]
    (remind,) = reminder.asked
    remind()
    assert writer.seen == [(5, 5), (15, 10)]
    line.close()


def test_who_is_asked_to_remind_does_so() -> None:
    reminder, reminded = Reminder(), threading.Event()
    reminder.ask(reminded.set)
    assert reminded.wait(60)


def test_who_waits_is_answered_at_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(acks, "HELD_SECONDS", 600)
    writer = Written()
    line = AckLine(writer, ByHand())
    line.send(Ack(ack_up_to_offset=1, rows=1))
    line.send(Ack(ack_up_to_offset=2, rows=1))
    line.send(Ack(ack_up_to_offset=3, rows=1), at_once=True)
    assert writer.seen == [(1, 1), (3, 2)]
    line.send(Ack(ack_up_to_offset=4, rows=1))
    line.close()
    assert writer.seen[-1] == (4, 1)
    line._remind()  # the call is over
    assert len(writer.seen) == 3


def test_whoever_takes_rows_in_does_not_wait_for_what_is_being_written(monkeypatch: Any) -> None:
    """A client that reads slowly: all that comes meanwhile goes together."""
    monkeypatch.setattr(acks, "HELD_SECONDS", 600)
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Written):
        def write(self, text: bytes) -> None:
            begun.set()
            assert go_on.wait(60)
            super().write(text)

    writer = Slow()
    line = AckLine(writer, ByHand())
    first = threading.Thread(target=line.send, args=(Ack(ack_up_to_offset=1, rows=1),))
    first.start()
    assert begun.wait(60)
    line.send(Ack(ack_up_to_offset=2, rows=1))
    line.send(Ack(ack_up_to_offset=3, rows=1))
    go_on.set()
    first.join(60)
    line.close()
    assert writer.seen == [(1, 1), (3, 2)]
