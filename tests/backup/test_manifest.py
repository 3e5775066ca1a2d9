from __future__ import annotations

import msgspec
import pytest

from tether.backup import Manifest, check_manifest
from tether.backup.manifest import decode_manifest, encode_manifest
from tether.core.errors import BackupUnreadableError, BadValueError, ChangedProgramError

FINGERPRINT = {
    "program": {"count": "sha:1"},
    "state": {"count": {"table": ["int64", "float64"]}},
    "slots": {"count": 4},
    "policy": {"name": "approximate", "max_state_error": 100.0},
    "keys": {"count": ("user", "day")},
}
STORED = decode_manifest(
    encode_manifest(Manifest.new(query_id="q", first_epoch=2, fingerprint=FINGERPRINT))
)


def test_people_can_read_it() -> None:
    text = encode_manifest(STORED).decode()
    assert text.startswith('{\n  "format": 3,\n')
    assert '"query_id": "q"' in text


def test_the_same_program_passes_tuples_and_all() -> None:
    check_manifest(STORED, FINGERPRINT)
    check_manifest(STORED, Manifest.new(query_id="other", first_epoch=9, fingerprint=FINGERPRINT))


def test_each_changed_part_is_named_with_old_and_new_and_advice() -> None:
    changed = FINGERPRINT | {
        "slots": {"count": 8, "join": 2},
        "policy": {"name": "minibatch"},
        "program": {"count": "sha:2"},
    }
    with pytest.raises(ChangedProgramError) as caught:
        check_manifest(STORED, changed)
    error = caught.value
    assert "policy, program, slots" in error.what
    assert "slots.count: 4 → 8" in error.why
    assert "slots.join: absent → 2" in error.why
    assert 'policy.name: "approximate" → "minibatch"' in error.why
    assert "policy.max_state_error: 100.0 → absent" in error.why
    assert "parallelism" in error.do
    assert "allow the change of 'program'" in error.do
    assert "empty backup directory" in error.do


def test_allowed_changes_pass_and_others_do_not() -> None:
    changed = FINGERPRINT | {"policy": {"name": "minibatch"}, "keys": {"count": ["user"]}}
    check_manifest(STORED, changed, allow=("policy", "keys"))
    with pytest.raises(ChangedProgramError, match="differs in: keys"):
        check_manifest(STORED, changed, allow=("policy",))
    with pytest.raises(BadValueError, match="'polcy'"):
        check_manifest(STORED, changed, allow=("polcy",))


def test_missing_and_new_parts_are_changes_and_long_values_are_cut() -> None:
    with pytest.raises(ChangedProgramError, match=r"keys: .* → absent"):
        check_manifest(STORED, {k: v for k, v in FINGERPRINT.items() if k != "keys"})
    with pytest.raises(ChangedProgramError) as caught:
        check_manifest(STORED, FINGERPRINT | {"extra": "x" * 10_000})
    assert "extra: absent → " in caught.value.why
    assert len(str(caught.value)) < 1000


def test_a_newer_format_is_refused_by_name() -> None:
    newer = b'{"format": 4, "shape": "unknown"}'
    with pytest.raises(BackupUnreadableError, match=r"format 4.*newer one"):
        decode_manifest(newer)


def test_an_older_format_is_refused_with_its_reason() -> None:
    older = encode_manifest(msgspec.structs.replace(STORED, format=1))
    with pytest.raises(BackupUnreadableError, match=r"format 1.*what each loss cost.*empty backup"):
        decode_manifest(older)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff\x00", b'{"format": "one"}', b"[" * 100_000]
)
def test_what_is_no_manifest_is_unreadable(data: bytes) -> None:
    with pytest.raises(BackupUnreadableError, match="damaged"):
        decode_manifest(data)


def test_a_fingerprint_must_be_plain() -> None:
    with pytest.raises(BadValueError, match="fingerprint"):
        Manifest.new(query_id="q", first_epoch=0, fingerprint={"program": object()})


def test_every_changed_byte_is_noticed_or_harmless() -> None:
    """One digit of the first epoch that changed unseen would change what is replayed."""
    good = encode_manifest(STORED)
    for position in range(len(good)):
        for bit in range(8):
            data = bytearray(good)
            data[position] ^= 1 << bit
            try:
                assert decode_manifest(bytes(data)) == STORED
            except BackupUnreadableError:
                continue
