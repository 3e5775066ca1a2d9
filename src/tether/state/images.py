"""Whole images of an object, each in a file of the arena, referred to by words of the header.

An image is written to a place that no word refers to, neither now nor after a rollback, and only
then does a word come to refer to it. So an image that is referred to is always whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.core.errors import ArenaError, BadValueError
from tether.state.header import DURABLE, IMAGES, IN_FLIGHT, LIVE

if TYPE_CHECKING:
    from tether.state.place import Place
    from tether.state.segment import Segment

_LENGTH_BITS = 40
_REFERRING = (LIVE, DURABLE, IN_FLIGHT)
FRESH = 0
"""What a word holds that refers to no stored image: the image of a new object."""


class Images:
    """The stored images of one object."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._segments: dict[int, Segment] = {}
        for word in self._referred():
            self._open(word)

    def read(self, word: int) -> bytes:
        """The image that a word refers to; not for ``FRESH``."""
        length = word & ((1 << _LENGTH_BITS) - 1)
        image = self._open(word).data[:length]
        if len(image) < length:
            raise ArenaError(
                f"The arena is damaged: its file {_name(word)} is missing or cut off.",
                why="Something other than Tether changed it.",
                do="Recreate the arena and restore the state from its backups.",
            )
        return image.tobytes()

    def write(self, image: bytes) -> int:
        """Store an image; give the word that refers to it."""
        if len(image) >= 1 << _LENGTH_BITS:
            raise BadValueError(
                f"An image of {len(image)} bytes is too large.", do="Keep large data in tables."
            )
        words = self._place.page.words
        number = words[IMAGES] = (
            words[IMAGES] + 1
        )  # no number is used twice, so nothing is overwritten
        word = int(number) << _LENGTH_BITS | len(image)
        self._place.litter()
        segment = self._place.segment(_name(word), "u1", slack=False, new=True)
        self._segments[word] = segment
        segment.ensure(len(image))
        segment.data[: len(image)] = np.frombuffer(image, np.uint8)
        return word

    def sweep(self) -> None:
        """Remove images that neither the state nor a rollback can refer to; between epochs."""
        used = self._referred()
        for word in used:
            self._open(word)
        for word in [word for word in self._segments if word not in used]:
            del self._segments[word]
            self._place.drop(_name(word))
        self._place.sweep()

    def _referred(self) -> set[int]:
        words = self._place.page.words
        return {int(words[word]) for word in _REFERRING} - {FRESH}

    def _open(self, word: int) -> Segment:
        if word not in self._segments:
            self._segments[word] = self._place.segment(_name(word), "u1", slack=False)
        return self._segments[word]


def _name(word: int) -> str:
    return f"image.{word >> _LENGTH_BITS}"
