"""Numbers and names that must not be mixed up, each with a type of its own.

They are plain ``int`` and ``str`` at run time, in files and in messages; only the type checker tells
them apart. Arithmetic gives a plain number again, so the result must be converted explicitly:

    >>> epoch_before(Epoch(7)), epoch_after(Epoch(7))
    (6, 8)

A slot is not the place where it runs. Its place is a seat: a partition that a host has put somewhere. A
slot can have several seats (its copies), and the number of slots can change at a restart; see
:mod:`tether.protocols.copies` and decision 18.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from collections.abc import Iterator

Epoch = NewType("Epoch", int)
"""An epoch of a query, counted from 0: the number of Spark's micro-batch."""

Slot = NewType("Slot", int)
"""A slot among those of its operator, counted from 0."""

Seat = NewType("Seat", int)
"""A copy of a slot: a place where one runs, among those of its operator, counted from 0."""

FrameNumber = NewType("FrameNumber", int)
"""The sequence number of a frame among those of its slot."""

Failures = NewType("Failures", int)
"""How many failures a slot has had: the paper's k."""

SnapshotNumber = NewType("SnapshotNumber", int)
"""A snapshot among those of its query. Not an epoch: a snapshot that failed has used a number up."""

Lineage = NewType("Lineage", str)
"""Identifies a slot's resident state from one restore to the next: each restore gives a new one."""

ResidentId = NewType("ResidentId", int)
"""Names the resident state of one seat where it is kept: with copies it is not the slot's number."""

NEVER = Epoch(-1)
"""No epoch: before the first one, or not known."""

DRIVERS = Slot(0)
"""What the driver stores itself, feedback and clocks, is slot 0 of a name that no operator has."""

GENESIS = Lineage("genesis")
"""Lineage of a state that has never been lost since the query's first epoch."""


def epoch_before(epoch: Epoch) -> Epoch:
    """The epoch before."""
    return Epoch(epoch - 1)


def epoch_after(epoch: Epoch) -> Epoch:
    """The epoch after."""
    return Epoch(epoch + 1)


def each_slot(slots: int) -> Iterator[Slot]:
    """The slots of an operator that has this number of them.

    Example:
        >>> list(each_slot(3))
        [0, 1, 2]
    """
    return map(Slot, range(slots))
