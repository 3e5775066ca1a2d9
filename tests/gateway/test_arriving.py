"""Several producers at a time share syncs; a disk that fails leaves neither halves nor holes."""

from __future__ import annotations

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.gateway.test_stream import crash, held, opened, rows

from tether.sources.gateway import saving, segments
from tether.sources.gateway.errors import StoreFailedError, WrongSequenceError
from tether.sources.gateway.records import Entry, SavedRun

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from tether.sources.gateway.messages import Ack
    from tether.sources.gateway.stream import GatewayStream


class Gate:
    """A disk whose first sync waits until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: OSError | None = None) -> None:
        self.asked, self.open, self.syncs = threading.Event(), threading.Event(), 0
        self.error = error
        really = os.fdatasync

        def sync(descriptor: int) -> None:
            self.syncs += 1
            if self.syncs == 1:
                self.asked.set()
                assert self.open.wait(60)
            elif self.error is not None:
                raise self.error
            really(descriptor)

        monkeypatch.setattr(segments.os, "fdatasync", sync)


def queue_up(stream: GatewayStream, gate: Gate, pool: ThreadPoolExecutor) -> list[Future[Ack]]:
    """One producer is in its sync; eight more have come meanwhile."""
    asked = [pool.submit(stream.put, "a", 1, rows("a", 1, 5))]
    assert gate.asked.wait(60)
    asked += [pool.submit(stream.put, name, 1, rows(name, 1, 5)) for name in "bcdefghi"]
    while len(stream._doorstep) < 8:
        time.sleep(0.001)
    gate.open.set()
    return asked


def test_producers_share_the_syncs_of_a_log_before_every_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(tmp_path, max_lost=0)
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(9) as pool:
        told = [one.result() for one in queue_up(stream, gate, pool)]
    assert [(ack.ack_up_to_offset, ack.rows) for ack in told] == [(5, 5)] * 9
    assert gate.syncs == 2
    crash(stream, power=True)
    again = opened(tmp_path, max_lost=0)
    assert sorted(held(again)) == sorted(f"{name}{n}" for name in "abcdefghi" for n in range(1, 6))
    crash(again)


def test_nothing_of_a_group_has_happened_where_the_disk_does_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(tmp_path, max_lost=0)
    gate = Gate(monkeypatch, OSError(28, "No space left on device"))
    with ThreadPoolExecutor(9) as pool:
        first, *others = queue_up(stream, gate, pool)
        assert first.result().rows == 5
        for one in others:
            with pytest.raises(StoreFailedError):
                one.result()
    assert held(stream) == [f"a{n}" for n in range(1, 6)]
    gate.error = None
    assert stream.put("b", 1, rows("b", 1, 5)).rows == 5  # as if it had never come
    assert len(held(stream)) == 10
    crash(stream)


def test_one_wrong_producer_of_a_group_harms_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opened(tmp_path, max_lost=0)
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(9) as pool:
        liar = pool.submit(stream.put, "a", 1, rows("a", 1, 5))
        assert gate.asked.wait(60)
        wrong = pool.submit(stream.put, "x", 7, rows("x", 7, 1))
        right = pool.submit(stream.put, "b", 1, rows("b", 1, 5))
        while len(stream._doorstep) < 2:
            time.sleep(0.001)
        gate.open.set()
        with pytest.raises(WrongSequenceError):
            wrong.result()
        assert right.result().rows == liar.result().rows == 5
    crash(stream)


@pytest.mark.parametrize("failing", [{2}, {3, 4, 5}, set(range(2, 200, 3))])
def test_parts_that_the_disk_gave_up_leave_no_hole_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: set[int]
) -> None:
    stream = opened(tmp_path, max_lost=200)
    really, calls = os.fdatasync, itertools.count()

    def sync(descriptor: int) -> None:
        if next(calls) in failing:
            raise OSError(5, "Input/output error")
        really(descriptor)

    monkeypatch.setattr(segments.os, "fdatasync", sync)
    for first in range(1, 3001, 10):
        while True:
            try:
                stream.put("a", first, rows("a", first, 10))
                break
            except StoreFailedError:  # sent again, as a producer does
                continue
    state = stream._items.state
    assert state.at_risk <= 100
    crash(stream)
    monkeypatch.undo()
    again = opened(tmp_path, max_lost=200)
    lost = again.lost.at_most if again.lost is not None else 0
    assert lost <= 100
    assert held(again) == [f"a{number}" for number in range(1, 3001 - int(lost))]
    crash(again)


def test_a_part_of_which_the_disk_gives_the_beginning_up_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has written the beginning of a part that was handed over; then the disk fails."""
    stream = opened(tmp_path, max_lost=2000)
    items = stream._items
    saver, log = items.saver, items.log
    monkeypatch.setattr(saving._threads, "submit", lambda _task: None)
    for first in (1, 11):
        stream.put("a", first, rows("a", first, 10))
    saver.hand_over(items.backlog.after)
    with saver.order:
        begun, _ = saver._write(items.backlog.after(0)[:1], Entry())

    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    def note(entry: Entry) -> Entry:  # asked between the look at what is written and the write
        with monkeypatch.context() as broken:
            broken.setattr(segments.os, "fdatasync", fails)
            with pytest.raises(StoreFailedError):
                log.sync(begun)
        return entry

    monkeypatch.setattr(saver, "_note", note)
    saver._carry()
    assert (log.written, log.facts.backed_up) == (0, 0)
    monkeypatch.undo()
    items.save()
    crash(stream)
    again = opened(tmp_path, max_lost=2000)
    assert held(again) == [f"a{number}" for number in range(1, 21)]
    crash(again)


def test_an_entry_after_a_hole_is_not_written(tmp_path: Path) -> None:
    log = segments.SegmentLog(tmp_path / "log")
    log.read()
    log.begin(Entry())
    size = log.nbytes
    with pytest.raises(StoreFailedError):
        log.write(Entry(runs=(SavedRun(11, "a", 11, 1, 0),)))
    assert log.nbytes == size
    log.close()
