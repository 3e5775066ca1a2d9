"""Acknowledgements that go together: none is lost, none comes after the end."""

from __future__ import annotations

import json
import threading
from typing import Any

from tether.sources.gateway import acks
from tether.sources.gateway.acks import AckLine, Reminder
from tether.sources.gateway.messages import Ack


class Written:
    """What a producer would see."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.changed = threading.Condition()

    def write(self, text: bytes) -> None:
        told: dict[str, Any] = json.loads(text)
        with self.changed:
            self.seen.append((told["ack_up_to_offset"], told.get("rows", 0)))
            self.changed.notify_all()

    def await_count(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.seen) >= count, 30)


def test_the_first_goes_at_once_and_those_after_it_together(monkeypatch: Any) -> None:
    monkeypatch.setattr(acks, "HELD_SECONDS", 0.2)
    writer = Written()
    line = AckLine(writer, Reminder())
    for upto in (5, 10, 15):
        line.send(Ack(ack_up_to_offset=upto, rows=5))
    assert writer.seen == [(5, 5)]
    writer.await_count(2)
    assert writer.seen == [(5, 5), (15, 10)]
    line.close()


def test_who_waits_is_answered_at_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(acks, "HELD_SECONDS", 60)
    writer = Written()
    line = AckLine(writer, Reminder())
    line.send(Ack(ack_up_to_offset=1, rows=1))
    line.send(Ack(ack_up_to_offset=2, rows=1))
    line.send(Ack(ack_up_to_offset=3, rows=1), at_once=True)
    assert writer.seen == [(1, 1), (3, 2)]
    line.send(Ack(ack_up_to_offset=4, rows=1))
    line.close()
    assert writer.seen[-1] == (4, 1)
    line._remind()  # the call is over
    assert len(writer.seen) == 3
