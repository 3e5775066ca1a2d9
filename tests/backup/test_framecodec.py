from __future__ import annotations

import struct
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.backup import framecodec
from tether.backup.framecodec import (
    MAX_HEAD_BYTES,
    PREFIX_BYTES,
    Compression,
    decode_frame,
    decode_header,
    decode_prefix,
    encode_frame,
)
from tether.core.errors import BackupUnreadableError, BadValueError

from .samples import header, parts, value_of

GOOD = b"".join(encode_frame(header(), parts(7), compression="none"))
PACKED = b"".join(encode_frame(header(), parts(7, rows=500), compression="lz4"))


def with_fresh_checksums(data: bytearray) -> bytes:
    """What an enemy who knows the format would write."""
    prefix = decode_prefix(bytes(data))
    start = prefix.padded_head_bytes
    struct.pack_into("<I", data, 20, crc32(data[start:-8]))
    head_crc = crc32(data[PREFIX_BYTES:start], crc32(data[:24]))
    struct.pack_into("<I", data, 24, head_crc)
    struct.pack_into("<I", data, len(data) - 4, head_crc)
    return bytes(data)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_frame_comes_back_as_it_was(compression: Compression) -> None:
    head = header(kind="partial", epoch=12)
    frame = decode_frame(b"".join(encode_frame(head, parts(5), compression=compression)))
    assert frame.header == head
    assert value_of(frame.parts) == 5
    assert [b.to_pylist() for b in frame.parts["table"]] == [
        b.to_pylist() for b in parts(5)["table"]
    ]


def test_a_frame_may_hold_no_parts_and_parts_no_batches() -> None:
    assert decode_frame(b"".join(encode_frame(header(kind="items"), {}))).parts == {}
    assert decode_frame(b"".join(encode_frame(header(), {"a": [], "b": []}))).parts == {
        "a": [],
        "b": [],
    }


def test_buffers_of_a_read_frame_are_aligned_and_not_copied() -> None:
    data = pa.allocate_buffer(len(GOOD))
    memoryview(data).cast("B")[:] = GOOD
    values = decode_frame(data).parts["table"][0].column("v").buffers()[1]
    assert data.address < values.address < data.address + data.size
    assert values.address % 8 == 0


def test_large_buffers_are_written_from_where_they_are() -> None:
    values = pa.array(np.arange(10_000.0))
    pieces = encode_frame(header(), {"v": [pa.record_batch({"v": values})]})
    addresses = [piece.address for piece in pieces if isinstance(piece, pa.Buffer)]
    assert values.buffers()[1].address in addresses


def test_a_header_is_read_without_the_payload() -> None:
    start = decode_prefix(GOOD).padded_head_bytes
    assert decode_header(GOOD[:start]).operator == "count"
    with pytest.raises(BackupUnreadableError, match="torn"):
        decode_header(GOOD[: start - 1])


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.lists(st.lists(st.floats(allow_nan=False), max_size=5), max_size=3),
        max_size=3,
    )
)
def test_any_state_comes_back(state: dict[str, list[list[float]]]) -> None:
    given_parts = {
        name: [pa.record_batch({"v": pa.array(values, pa.float64())}) for values in batches]
        for name, batches in state.items()
    }
    assert decode_frame(b"".join(encode_frame(header(), given_parts))).parts == given_parts


@given(st.binary(max_size=300))
def test_random_bytes_are_unreadable(data: bytes) -> None:
    with pytest.raises(BackupUnreadableError):
        decode_frame(data)


@given(st.binary(max_size=300))
def test_random_bytes_after_a_good_beginning_are_unreadable(data: bytes) -> None:
    with pytest.raises(BackupUnreadableError):
        decode_frame(GOOD[:8] + data)


@given(st.sampled_from([GOOD, PACKED]), st.data())
def test_any_changed_byte_is_noticed(good: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(good) - 1))
    damaged = bytearray(good)
    damaged[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BackupUnreadableError):
        decode_frame(bytes(damaged))


@pytest.mark.parametrize("position", range(-8, 0))
def test_an_end_that_is_not_the_frames_own_is_noticed(position: int) -> None:
    """The checksums of head and state do not cover it: it says that all of the frame was written."""
    damaged = bytearray(GOOD)
    damaged[position] ^= 0x10
    with pytest.raises(BackupUnreadableError, match="end"):
        decode_frame(bytes(damaged))


@given(st.integers(0, len(GOOD) - 1))
def test_any_truncation_is_noticed(length: int) -> None:
    with pytest.raises(BackupUnreadableError):
        decode_frame(GOOD[:length])
    with pytest.raises(BackupUnreadableError):
        decode_frame(GOOD + GOOD[:length] + b"x")


@settings(max_examples=200)
@given(
    st.sampled_from([GOOD, PACKED]),
    st.lists(
        st.tuples(st.floats(0, 0.999), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4
    ),
)
def test_hostile_content_under_right_checksums_is_caught(
    good: bytes, changes: list[tuple[float, bytes]]
) -> None:
    """Arrow must not crash, hang or escape with an error of its own, whatever the stream says."""
    data = bytearray(good)
    start = PREFIX_BYTES
    for place, change in changes:
        position = start + int(place * (len(good) - 8 - start - len(change)))
        data[position : position + len(change)] = change
    hostile = with_fresh_checksums(data)
    try:
        frame = decode_frame(hostile)
    except BackupUnreadableError:
        return
    for batches in frame.parts.values():  # what is let through is sound
        for batch in batches:
            batch.validate(full=True)


@pytest.mark.parametrize("claim", [2**63 - 1, 2**40, -5])
def test_a_compressed_buffer_that_lies_about_its_size_is_caught(claim: int) -> None:
    batch = pa.record_batch({"v": pa.array(np.zeros(4000))})
    data = bytearray(b"".join(encode_frame(header(), {"v": [batch]}, compression="lz4")))
    size = struct.pack("<q", 4000 * 8)  # what Arrow writes before a packed buffer
    assert data.count(size) == 1
    struct.pack_into("<q", data, data.index(size), claim)
    with pytest.raises(BackupUnreadableError, match="Arrow cannot read part 'v'"):
        decode_frame(with_fresh_checksums(data))


def test_bytes_behind_the_end_of_a_stream_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    really = framecodec._encode_part
    monkeypatch.setattr(
        framecodec,
        "_encode_part",
        lambda *args: [*really(*args), b"more"],
    )
    hostile = b"".join(encode_frame(header(), parts()))
    with pytest.raises(BackupUnreadableError, match="4 bytes that are not its"):
        decode_frame(hostile)


@pytest.mark.parametrize(("offset", "kind"), [(8, "<I"), (12, "<Q")])
def test_a_length_that_lies_costs_no_memory(offset: int, kind: str) -> None:
    data = bytearray(GOOD)
    struct.pack_into(kind, data, offset, 2 ** (8 * struct.calcsize(kind)) - 1)
    with pytest.raises(BackupUnreadableError, match=r"claims to be|should be"):
        decode_frame(bytes(data))


def test_a_newer_format_is_named() -> None:
    data = bytearray(GOOD)
    struct.pack_into("<H", data, 6, 9)
    with pytest.raises(BackupUnreadableError, match="format is 9"):
        decode_frame(bytes(data))


@pytest.mark.parametrize(
    "change",
    [
        {"slot": -1},
        {"epoch": 2**70},
        {"kind": "half"},
        {"carried": -1.0},
        {"cause": "x" * MAX_HEAD_BYTES},
    ],
)
def test_a_header_that_could_not_be_read_back_is_never_written(change: dict[str, object]) -> None:
    with pytest.raises(BadValueError, match="header"):
        encode_frame(header(**change), {})


def test_batches_of_one_part_must_share_a_schema() -> None:
    mixed = [pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})]
    with pytest.raises(BadValueError, match="different schemas"):
        encode_frame(header(), {"mixed": mixed})
