"""Entries of a commit log in their order: whatever does not fit is told, and stays told."""

from __future__ import annotations

from tether.backup import CommitRecord
from tether.backup.commitcodec import BEGINNING, Numbered, decode_entry, encode_entry
from tether.backup.commitlog import joined, replay
from tether.backup.commits import CommitSnapshot

EMPTY = CommitSnapshot(records=[], failures={}, losses={}, gaps=[])


def log_of(run: str) -> list[Numbered]:
    """Three records of one driver, after the snapshot that a log begins with."""
    entries = [decode_entry(encode_entry(EMPTY, BEGINNING))]
    for epoch in range(3):
        made = CommitRecord(epoch=epoch, run=run, slots={})
        entries.append(decode_entry(encode_entry(made, entries[-1].end)))
    return entries


def test_a_record_of_another_log_does_not_follow() -> None:
    begin, *ours = log_of("ours")
    _, *theirs = log_of("theirs")
    assert joined([begin, *ours]).lost == []
    (told,) = joined([begin, ours[0], ours[1], theirs[2]]).lost
    assert told == "Record 3 does not follow on the one before it."
    assert len(joined([begin, ours[0], theirs[1], ours[2]]).lost) == 2


def test_a_gap_before_a_snapshot_is_not_forgotten() -> None:
    assert replay([EMPTY]).gaps == []
    assert replay(["garbage", EMPTY]).gaps == ["garbage"]
    assert replay(["garbage", EMPTY, "more"]).gaps == ["garbage", "more"]
