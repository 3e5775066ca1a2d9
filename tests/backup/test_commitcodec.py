from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.backup import CommitRecord, FrameRef, SlotCommit
from tether.backup.commitcodec import BEGINNING, decode_entry, encode_entry, scan_log
from tether.backup.commits import CommitSnapshot, LogEntry
from tether.core.errors import BackupUnreadableError, BadValueError

from .samples import record

RECORDS = [
    record(
        epoch,
        count=SlotCommit(
            epoch=epoch, frame=FrameRef("slots/count/0/x.log", epoch, 8), divergence_after=1.0
        ),
    )
    for epoch in range(3)
]


def in_a_chain(records: list[CommitRecord]) -> list[bytes]:
    """Entries that follow on each other."""
    entries, end = [], BEGINNING
    for made in records:
        entries.append(encode_entry(made, end))
        end = decode_entry(entries[-1]).end
    return entries


ENTRIES = in_a_chain(RECORDS)
LOG = b"".join(ENTRIES)
STARTS = [sum(map(len, ENTRIES[:n])) for n in range(4)]
HEAD = 36
"""Bytes of an entry before its body."""


def contents(data: bytes) -> list[LogEntry]:
    return [entry.content for entry in scan_log(data).entries]


def test_entries_come_back_numbered_and_chained() -> None:
    scanned = scan_log(LOG)
    assert [entry.content for entry in scanned.entries] == RECORDS
    assert [entry.number for entry in scanned.entries] == [1, 2, 3]
    assert scanned.entries[2].previous == scanned.entries[1].digest != scanned.entries[0].digest
    assert scanned.clean
    assert decode_entry(ENTRIES[1]).content == RECORDS[1]
    assert scan_log(b"").entries == []


def test_a_snapshot_takes_the_place_of_the_last_record() -> None:
    end = decode_entry(ENTRIES[2]).end
    snapshot = CommitSnapshot(records=RECORDS, failures={}, losses={}, gaps=[])
    assert decode_entry(encode_entry(snapshot, end)).end == end


@given(st.integers(STARTS[2] + 1, STARTS[3] - 1))
def test_a_torn_tail_is_told_and_the_rest_kept(length: int) -> None:
    scanned = scan_log(LOG[:length])
    assert contents(LOG[:length]) == RECORDS[:2]
    assert scanned.tail
    assert scanned.torn
    assert scanned.damage == []


def test_no_damaged_bit_of_the_newest_entry_looks_torn() -> None:
    """A damaged length above all: it says that there should be more."""
    for bit in range(8 * STARTS[2], 8 * STARTS[3]):
        data = bytearray(LOG)
        data[bit // 8] ^= 1 << (bit % 8)
        scanned = scan_log(bytes(data))
        assert [entry.content for entry in scanned.entries] == RECORDS[:2]
        assert scanned.tail
        assert not scanned.torn


@given(st.integers(0, HEAD - 1), st.integers(1, 255), st.integers(1, 60))
def test_a_torn_tail_with_a_damaged_head_is_damage(at: int, flip: int, length: int) -> None:
    """As far as the head of the next entry can be foretold, or is there whole."""
    data = bytearray(ENTRIES[2][:length])
    if at >= length or (at >= 24 and length < HEAD):
        return
    data[at] ^= flip
    assert not scan_log(LOG[: STARTS[2]] + bytes(data)).torn or not any(data)


def test_zeros_after_a_power_cut_are_a_torn_tail() -> None:
    scanned = scan_log(LOG + bytes(100))
    assert contents(LOG + bytes(100)) == RECORDS
    assert scanned.torn


def test_an_entry_of_another_log_is_no_torn_tail() -> None:
    other = in_a_chain([*RECORDS[:2], record(9), record(10)])[3]
    assert not scan_log(LOG + other[:-1]).torn


@given(st.integers(STARTS[1], STARTS[2] - 1), st.integers(1, 255))
def test_damage_in_the_middle_hides_one_entry_only(position: int, flip: int) -> None:
    data = bytearray(LOG)
    data[position] ^= flip
    scanned = scan_log(bytes(data))
    assert [entry.number for entry in scanned.entries] == [1, 3]
    assert len(scanned.damage) == 1
    assert not scanned.tail


@given(st.binary(max_size=200))
def test_any_bytes_are_scanned_without_an_error(data: bytes) -> None:
    for log in (data, LOG + data):
        scan_log(log)
    assert contents(data + LOG)[-3:] == RECORDS
    assert contents(LOG + data)[:3] == RECORDS


@given(st.binary(max_size=100))
def test_bytes_that_are_not_one_entry_are_unreadable(data: bytes) -> None:
    for damaged in (data, ENTRIES[0] + ENTRIES[1], ENTRIES[0][:-1], ENTRIES[0] + b"x"):
        with pytest.raises(BackupUnreadableError):
            decode_entry(damaged)


@pytest.mark.parametrize(
    "bad",
    [
        CommitRecord(epoch=-1, run="r", slots={}),
        CommitRecord(
            epoch=1, run="r", slots={"no slot number": SlotCommit(epoch=1, divergence_after=0)}
        ),
        CommitRecord(epoch=2**80, run="r", slots={}),
    ],
)
def test_a_record_that_could_not_be_read_back_is_never_written(bad: CommitRecord) -> None:
    with pytest.raises(BadValueError, match="commit record"):
        encode_entry(bad)
