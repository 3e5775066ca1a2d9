"""The feed as files: one fact a line, each with a checksum, in segments of bounded size.

A line is ``<crc32 of the fact, eight hex digits> <the fact as JSON>``. What a crash tore off, and what
rotted, does not pass the check: such lines are left out and counted, the rest is read. A segment
begins with the query's facts and the sums of all before it, so that elder ones can be dropped.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.observe.facts import decode_fact, encode_fact

if TYPE_CHECKING:
    from tether.observe.facts import Fact

FOLDER = "feed"
"""Folder of the feed, beside the backups."""
SUFFIX = ".feed"
SEGMENT_BYTES = 1 << 20
KEPT_BYTES = 32 << 20
"""Elder segments are dropped beyond this: of epochs of a second, about a day."""


def segment_name(began: float, run: str, number: int) -> str:
    """Name of a segment: in the order of their names, they are in the order of time.

    Example:
        >>> segment_name(1700000000.5, "a1b2c3d4e5", 3)
        '1700000000500.000003.a1b2c3d4.feed'
    """
    return f"{int(began * 1000):013d}.{number:06d}.{run[:8]}{SUFFIX}"


def line_of(fact: Fact) -> bytes:
    """A fact as a line."""
    told = encode_fact(fact)
    return b"%08x %s\n" % (zlib.crc32(told), told)


class Lines(NamedTuple):
    """What was read of a segment."""

    facts: list[Fact]
    bad: int
    """Lines that did not pass the check, or are of a kind that this version does not know."""
    used: int
    """Bytes read; what follows is a line whose end is not there yet."""


def read_lines(data: bytes) -> Lines:
    r"""Facts of whole, sound lines.

    Example:
        >>> from tether.observe.facts import Ended
        >>> whole = line_of(Ended(at=1.0, how="stopped"))
        >>> read = read_lines(whole + b"0000 rotten\n" + whole[:-5])
        >>> len(read.facts), read.bad, read.used == len(whole) + 12
        (1, 1, True)
    """
    facts: list[Fact] = []
    end = data.rfind(b"\n") + 1
    bad = 0
    for line in data[:end].splitlines():
        checksum, _, told = line.partition(b" ")
        try:
            if int(checksum, 16) != zlib.crc32(told):
                raise ValueError(line)
            facts.append(decode_fact(told))
        except (ValueError, msgspec.MsgspecError, RecursionError):
            bad += 1
    return Lines(facts, bad, end)
