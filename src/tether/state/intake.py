"""Counts how much of a stream an object has processed, for objects whose distance is such a count.

A sketch or a model that can only be compared by counting is some prefix of a stream. Of two
prefixes of one stream, the difference of the counts says how much one of them lacks. Once an object has
been emptied, and filled again, it is a prefix of another stream: its whole content may differ, even if
the counts are equal. So an image also contains how often its object was emptied.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tether.core.errors import BackupUnreadableError

_FORM = struct.Struct("<qd")


class Intake(NamedTuple):
    """What an object has processed since it was last empty.

    Example:
        >>> Intake(0, 120.0).apart(Intake(0, 100.0)), Intake(1, 20.0).apart(Intake(0, 100.0))
        (20.0, 120.0)
    """

    emptied: int
    """Number of times that it was emptied."""
    items: float
    """Items, or their weight."""

    def apart(self, other: Intake) -> float:
        """The largest possible difference between the two."""
        if self.emptied == other.emptied:
            return abs(self.items - other.items)
        return self.items + other.items

    def before(self, content: bytes) -> bytes:
        """An image: this, then the object's own bytes."""
        return _FORM.pack(*self) + content

    @classmethod
    def split(cls, image: bytes) -> tuple[Intake, bytes]:
        """What ``before`` put together.

        Raises:
            BackupUnreadableError: The image is too short.
        """
        if len(image) < _FORM.size:
            raise BackupUnreadableError(
                f"An image of {len(image)} bytes is cut off.",
                do="Restore with the program that wrote the backup.",
            )
        return cls(*_FORM.unpack_from(image)), bytes(image[_FORM.size :])
