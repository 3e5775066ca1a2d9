"""One stream with its real files: crashed at any moment, it loses at most l and doubles nothing."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tether.sources.gateway import segments
from tether.sources.gateway.config import GatewayConfig
from tether.sources.gateway.errors import BusyError, GatewayError, WrongSequenceError
from tether.sources.gateway.marks import MarkFile
from tether.sources.gateway.messages import CommitNote, Hello
from tether.sources.gateway.stream import GatewayStream

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema({"id": pa.string()})


def rows(producer: str, first: int, count: int) -> pa.RecordBatch:
    names = [f"{producer}{number}" for number in range(first, first + count)]
    return pa.record_batch([names], schema=SCHEMA)


def opened(folder: Path, **options: object) -> GatewayStream:
    config = GatewayConfig(store=folder, **options)
    return GatewayStream("s", SCHEMA, folder / "s", config, "store")


def crash(stream: GatewayStream, *, power: bool = False) -> None:
    """As if its process had been killed: memory is gone, files stay. A power cut takes marks, too."""
    items = stream._items
    with items.lock:
        items.stopping = True
    items.saver.wait(lambda: False)
    items.log.close()
    items.marks.close()
    if power:
        items.marks._path.unlink()


def held(stream: GatewayStream) -> list[str]:
    now = stream._items.state  # a look that shows nothing
    if now.received <= now.processed:
        return []
    return [
        value
        for batch in stream.read(now.processed + 1, now.received)
        for value in batch["id"].to_pylist()
    ]


class Crashing(RuleBasedStateMachine):
    """Producers a and b, a reader, and crashes in between; a model says what may be lost."""

    @initialize(l=st.sampled_from([0, 1, 3, 8, 1000]))
    def begin(self, l: int) -> None:  # noqa: E741
        import tempfile
        from pathlib import Path

        # In memory where that can be: thousands of syncs are made here, and no power is cut.
        memory = Path("/dev/shm")
        within = memory if os.access(memory, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="tether-stream-", dir=within))
        self.max_lost = 2 * l
        self.stream = opened(self.folder, max_lost=self.max_lost)
        self.sent: Counter[str] = Counter()
        self.acked: Counter[str] = Counter()
        self.processed: list[str] = []
        self.planned: tuple[int, int] | None = None
        self.position = 0
        self.told = 0.0
        self.powers = 0

    def teardown(self) -> None:
        if hasattr(self, "stream"):
            import shutil

            crash(self.stream)
            shutil.rmtree(self.folder)

    @rule(producer=st.sampled_from("ab"), count=st.integers(1, 4), heard=st.booleans())
    def send(self, producer: str, count: int, heard: bool) -> None:
        """Everything not acknowledged is sent again, with something new; the answer may be lost."""
        first = self.acked[producer] + 1
        newest = self.sent[producer] + count
        self.stream.put(producer, first, rows(producer, first, newest - first + 1))
        self.sent[producer] = newest
        if heard:
            self.acked[producer] = newest

    @precondition(lambda self: self.planned is None)
    @rule()
    def plan(self) -> None:
        shown = self.stream.show()
        if shown > self.position:
            self.planned = (self.position, shown)

    @precondition(lambda self: self.planned is not None)
    @rule(told=st.booleans())
    def run_epoch(self, told: bool) -> None:
        """A query reads the planned numbers and commits; the gateway may hear of it later."""
        after, upto = self.planned
        for batch in self.stream.read(after + 1, upto):
            self.processed += batch["id"].to_pylist()
        self.position, self.planned = upto, None
        if told:
            self.stream.commit(CommitNote(stream="s", reader="q", upto=upto))

    @precondition(lambda self: self.planned is None)
    @rule(count=st.integers(1, 4))
    def run_while_rows_come(self, count: int) -> None:
        """An epoch is processed, and more rows come, before anything of them is durable."""
        self.plan()
        if self.planned is not None:
            self.run_epoch(told=True)
        self.send("a", count, heard=True)

    @rule(time=st.floats(0, 9))
    def boundary(self, time: float) -> None:
        number = max(self.acked["c"], self.stream._items.heard.get("c", 0)) + 1
        self.stream.put_boundary("c", number, time)
        self.acked["c"] = number

    def at_risk(self) -> set[str]:
        """Acknowledged to their producers, in no state, and nowhere else."""
        there = {*self.processed, *held(self.stream)}
        return {
            f"{producer}{number}"
            for producer in "ab"
            for number in range(1, self.acked[producer] + 1)
        } - there

    @rule(power=st.booleans())
    def crash_and_restart(self, power: bool) -> None:
        before = self.at_risk()
        limit = self.stream._items.account.limit
        crash(self.stream, power=power)
        self.stream = opened(self.folder, max_lost=self.max_lost)
        lost = self.at_risk() - before
        assert len(lost) <= limit
        told = 0.0 if self.stream.lost is None else self.stream.lost.at_most
        assert len(lost) <= told <= limit
        self.powers += power

    @rule()
    def stop_and_start(self) -> None:
        before = self.at_risk()
        self.stream.close()
        self.stream = opened(self.folder, max_lost=self.max_lost)
        assert self.stream.lost is None
        assert self.at_risk() == before

    @invariant()
    def nothing_is_doubled(self) -> None:
        if not hasattr(self, "stream"):
            return
        both = self.processed + [
            value for batch in self._unread() for value in batch["id"].to_pylist()
        ]
        assert all(n == 1 for n in Counter(both).values()), both

    def _unread(self) -> list[pa.RecordBatch]:
        newest = self.stream._items.state.received
        return self.stream.read(self.position + 1, newest) if newest > self.position else []

    @invariant()
    def never_more_than_l_in_all(self) -> None:
        if not hasattr(self, "stream"):
            return
        told = sum(loss.at_most for loss in self.stream._items.account.losses)
        assert len(self.at_risk()) <= told <= self.max_lost
        assert self.stream._items.state.at_risk <= self.stream._items.account.limit


TestCrashing = Crashing.TestCase
TestCrashing.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def stream(tmp_path: Path) -> GatewayStream:
    return opened(tmp_path, max_lost=40)


def test_a_crash_is_told_exactly_once_producers_are_back(
    stream: GatewayStream, tmp_path: Path
) -> None:
    stream.put("a", 1, rows("a", 1, 5))
    crash(stream)
    again = opened(tmp_path, max_lost=40)
    assert again.lost is not None
    assert again.lost.at_most == 5
    again.put("a", 4, rows("a", 4, 3))  # the answer for 4 and 5 had not come
    assert again.status().losses[0].at_most == 3
    assert held(again) == ["a4", "a5", "a6"]
    assert again.status().limit == 10  # halved
    crash(again)


def test_a_crash_while_it_is_being_opened_forgets_nothing(
    stream: GatewayStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.put("a", 1, rows("a", 1, 5))
    crash(stream)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # the loss is in the log, the old marks are still there
        patch.setattr(MarkFile, "begin", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path, max_lost=40)
    again = opened(tmp_path, max_lost=40)
    assert [loss.at_most for loss in again.status().losses] == [5]
    again.put("a", 3, rows("a", 3, 3))
    assert again.status().losses[0].at_most == 2
    assert held(again) == ["a3", "a4", "a5"]
    crash(again)


def test_a_gap_is_refused_and_harms_nobody(stream: GatewayStream) -> None:
    stream.put("a", 1, rows("a", 1, 2))
    with pytest.raises(WrongSequenceError, match="row 3 is next"):
        stream.put("a", 5, rows("a", 5, 1))
    with pytest.raises(WrongSequenceError, match="from 1"):
        stream.put("a", 0, rows("a", 1, 1))
    stream.put("b", 1, rows("b", 1, 1))
    assert held(stream) == ["a1", "a2", "b1"]
    crash(stream)


def test_what_is_gone_is_not_given_as_less(stream: GatewayStream) -> None:
    stream.put("a", 1, rows("a", 1, 9))
    stream.commit(CommitNote(stream="s", reader="q", upto=4))
    with pytest.raises(GatewayError, match="up to 4 are gone"):
        stream.read(3, 9)
    with pytest.raises(GatewayError, match="newest is 9"):
        stream.read(5, 10)
    assert next(v for b in stream.read(5, 9) for v in b["id"].to_pylist()) == "a5"
    crash(stream)


def test_items_wait_for_the_slowest_reader(stream: GatewayStream) -> None:
    stream.commit(CommitNote(stream="s", reader="slow"))
    stream.commit(CommitNote(stream="s", reader="fast"))
    stream.put("a", 1, rows("a", 1, 9))
    stream.commit(CommitNote(stream="s", reader="fast", upto=9))
    assert stream.status().committed == 0
    stream.forget("slow")
    assert stream.status().committed == 9
    crash(stream)


def test_a_reader_may_ask_for_less_to_be_lost(stream: GatewayStream, tmp_path: Path) -> None:
    stream.put("a", 1, rows("a", 1, 5))
    assert stream.status().at_risk == 5
    stream.commit(CommitNote(stream="s", reader="exact", max_lost=0.0))
    assert (stream.status().at_risk, stream.status().limit) == (0, 0)
    stream.put("a", 6, rows("a", 6, 3))
    crash(stream, power=True)
    again = opened(tmp_path, max_lost=40)
    assert again.lost is None
    assert len(held(again)) == 8
    assert again.status().limit == 0  # the reader is not forgotten
    crash(again)


def test_items_leave_memory_for_the_disk_and_come_back(tmp_path: Path) -> None:
    stream = opened(tmp_path, max_lost=0, memory_bytes=2000)
    for at in range(200):
        stream.put("a", 10 * at + 1, rows("a", 10 * at + 1, 10))
    assert stream.memory_bytes <= 2000
    assert held(stream) == [f"a{number}" for number in range(1, 2001)]
    crash(stream)


def test_items_may_be_processed_before_they_are_durable(tmp_path: Path) -> None:
    """Nobody needs them on disk then; those that follow them do."""
    stream = opened(tmp_path, max_lost=2000)
    stream.put("a", 1, rows("a", 1, 50))  # so few that nobody begins to save them
    stream.commit(CommitNote(stream="s", reader="q", upto=stream.show()))
    for first in range(51, 1551, 50):  # more than l
        stream.put("a", first, rows("a", first, 50))
    assert stream.status().at_risk <= 1000
    stream.close()
    again = opened(tmp_path, max_lost=2000)
    assert again.lost is None
    assert held(again) == [f"a{number}" for number in range(51, 1551)]
    again.put("a", 1551, rows("a", 1551, 50))
    again.commit(CommitNote(stream="s", reader="q", upto=again.show()))
    again.put("a", 1601, rows("a", 1601, 5))
    again.put_boundary("a", 1606, 1.0)
    crash(again)
    third = opened(tmp_path, max_lost=2000)
    assert third.lost is None
    assert held(third) == [f"a{number}" for number in range(1601, 1606)]
    crash(third)


def test_files_go_when_their_items_are_processed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 2000)
    stream = opened(tmp_path, max_lost=0)
    for at in range(50):
        stream.put("a", 10 * at + 1, rows("a", 10 * at + 1, 10))
    many = len(list((tmp_path / "s").glob("segment-*")))
    assert many > 5
    stream.commit(CommitNote(stream="s", reader="q", upto=480))
    assert len(list((tmp_path / "s").glob("segment-*"))) < many
    crash(stream)
    again = opened(tmp_path, max_lost=0)
    assert held(again) == [f"a{number}" for number in range(481, 501)]
    assert again.put("a", 1, rows("a", 1, 500)).duplicates == 500
    crash(again)


def test_a_full_store_makes_producers_wait(tmp_path: Path) -> None:
    stream = opened(tmp_path, max_lost=0, store_bytes=1000)
    stream.put("a", 1, rows("a", 1, 100))
    with pytest.raises(BusyError, match="no room"):
        stream.put("a", 101, rows("a", 101, 1))
    asked = iter([True, True, False])
    with pytest.raises(BusyError):
        stream.put("a", 101, rows("a", 101, 1), wait=lambda: next(asked))
    crash(stream)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.97])
def test_a_torn_end_is_cut_and_the_rest_is_whole(tmp_path: Path, keep: float) -> None:
    stream = opened(tmp_path, max_lost=0)
    for at in range(10):
        stream.put("a", 10 * at + 1, rows("a", 10 * at + 1, 10))
    crash(stream)
    newest = max((tmp_path / "s").glob("segment-*"))
    data = newest.read_bytes()
    newest.write_bytes(data[: int(len(data) * keep)])
    again = opened(tmp_path, max_lost=0)
    left = held(again)
    assert left == [f"a{number}" for number in range(1, len(left) + 1)]
    assert len(left) % 10 == 0
    # The marks say what was there: a disk that lost durable bytes is told, beyond any budget.
    assert again.lost is not None
    assert again.lost.at_most == 100 - len(left)
    crash(again)


def test_a_flipped_bit_is_never_read_as_rows(tmp_path: Path) -> None:
    stream = opened(tmp_path, max_lost=0)
    stream.put("a", 1, rows("a", 1, 50))
    stream.put("a", 51, rows("a", 51, 50))
    crash(stream)
    newest = max((tmp_path / "s").glob("segment-*"))
    data = bytearray(newest.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    newest.write_bytes(bytes(data))
    again = opened(tmp_path, max_lost=0)
    assert held(again) == [f"a{number}" for number in range(1, 51)]
    assert again.status().losses[0].at_most == 50
    crash(again)


def test_a_dead_producer_counts_until_it_is_back(stream: GatewayStream) -> None:
    first = Hello(stream="s", producer="p", life="1", max_unacked=7)
    _, session = stream.hello(first, "p")
    assert stream.status().gone == 0
    stream.goodbye("p", session, in_good_order=False)
    assert stream.status().gone == 7
    _, session = stream.hello(first, "p")  # the same process, after a broken connection
    assert stream.status().gone == 0
    stream.goodbye("p", session, in_good_order=False)
    second = Hello(stream="s", producer="p", life="2", max_unacked=7)
    _, session = stream.hello(second, "p")  # another process: what the first one held is gone
    assert stream.status().gone == 7
    stream.goodbye("p", session, in_good_order=True)
    assert stream.status().gone == 7
    crash(stream)


def test_gamma_is_shared_and_shrinks_with_deaths(tmp_path: Path) -> None:
    stream = opened(tmp_path, max_unacked=80, producers=2)
    welcome, _ = stream.hello(Hello(stream="s", producer="p", life="1"), "p")
    assert welcome.max_unacked == 20
    stream.hello(Hello(stream="s", producer="p", life="2"), "p")
    welcome, _ = stream.hello(Hello(stream="s", producer="q", life="1"), "q")
    assert welcome.max_unacked == 10
    crash(stream)


def test_boundaries_keep_their_place(stream: GatewayStream, tmp_path: Path) -> None:
    stream.put("a", 1, rows("a", 1, 2))
    stream.put_boundary("a", 3, 7.5)
    stream.put("a", 4, rows("a", 4, 1))
    crash(stream)
    again = opened(tmp_path, max_lost=40)
    assert [(b.number, b.time) for b in again.status().boundaries] == [(3, 7.5)]
    assert again.lost is not None
    assert again.lost.at_most == 1
    assert math.isfinite(again.status().limit)
    crash(again)
