from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.backup import CommitRecord, FrameRef, SlotCommit
from tether.backup.commitcodec import decode_entry, encode_entry, scan_log
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
ENTRIES = [encode_entry(entry) for entry in RECORDS]
LOG = b"".join(ENTRIES)
STARTS = [sum(map(len, ENTRIES[:n])) for n in range(4)]


def test_entries_come_back() -> None:
    scanned = scan_log(LOG)
    assert scanned.entries == RECORDS
    assert (scanned.clean_bytes, scanned.torn) == (len(LOG), "")
    assert decode_entry(ENTRIES[1]) == RECORDS[1]
    assert scan_log(b"").entries == []


@given(st.integers(STARTS[2] + 1, STARTS[3] - 1))
def test_a_torn_tail_is_told_and_the_rest_kept(length: int) -> None:
    scanned = scan_log(LOG[:length])
    assert scanned.entries == RECORDS[:2]
    assert scanned.clean_bytes == STARTS[2]
    assert "not completely written" in scanned.torn


def test_zeros_after_a_power_cut_are_a_torn_tail() -> None:
    scanned = scan_log(LOG + bytes(100))
    assert scanned.entries == RECORDS
    assert scanned.clean_bytes == len(LOG)
    assert scanned.torn


@given(st.integers(STARTS[1], STARTS[2] - 1), st.integers(1, 255))
def test_damage_in_the_middle_hides_one_entry_only(position: int, flip: int) -> None:
    data = bytearray(LOG)
    data[position] ^= flip
    scanned = scan_log(bytes(data))
    assert [entry for entry in scanned.entries if not isinstance(entry, str)] == [
        RECORDS[0],
        RECORDS[2],
    ]
    assert isinstance(scanned.entries[1], str)
    assert not scanned.torn


def test_a_rotten_last_entry_is_damage_and_not_a_torn_tail() -> None:
    """It was completely written, so Spark may have committed its epoch: it must not be cut."""
    scanned = scan_log(LOG[:-1] + b"\xff")
    assert scanned.clean_bytes == len(LOG)
    assert isinstance(scanned.entries[-1], str)
    assert "checksum" in scanned.entries[-1]


@given(st.binary(max_size=200))
def test_any_bytes_are_scanned_without_an_error(data: bytes) -> None:
    for log in (data, LOG + data, data + LOG):
        scanned = scan_log(log)
        assert 0 <= scanned.clean_bytes <= len(log)
    assert [e for e in scan_log(data + LOG).entries if not isinstance(e, str)][-3:] == RECORDS


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
