"""Sketches of Apache DataSketches as state (extra ``sketches``).

Every sketch has a binary format of its own, read by its own library; nothing is pickled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tether.core.errors import BadValueError
from tether.state.intake import Intake

_SIZES = ("n", "total_weight", "get_total_weight")
"""What a sketch may call the size of its stream."""


def sketch(new: Any) -> SketchState:
    """A DataSketches sketch in the form that ``SlotState.object`` takes.

    Its divergence is how much of the stream the live sketch has taken in and the backup has not, or
    the other way round: weight for frequency sketches, items for all others. So after a loss it is a
    sketch of a stream that lacks at most so much; what it answers has its own error on top. This is
    also so for sketches that count distinct items: at most that number is missing from the set that they
    count. (The difference of two estimates would promise too much: one lost item can move a later
    estimate by far more than 1.)

    Empty it with ``clear()``, and give it items by its own ``update``, not by that of the sketch within:
    sketches of distinct items do not know how many they were given.

    Args:
        new: An empty sketch with a binary form: kll, req, quantiles, tdigest, count_min,
            frequent_strings, hll, cpc and others.

    Raises:
        BadValueError: It has no binary form that can be updated again.

    Example:
        >>> from datasketches import kll_floats_sketch
        >>> from tether.state import SlotState
        >>> state = SlotState.heap()
        >>> handle = state.object("latency", sketch(kll_floats_sketch(200)))
        >>> state.begin(0)
        >>> for value in range(100):
        ...     handle.value.update(float(value))
        >>> handle.divergence(), 45 < handle.value.get_quantile(0.5) < 55
        (100.0, True)
    """
    return SketchState(new)


class SketchState:
    """A sketch with the three methods of a state; ``update`` and all others are the sketch's own."""

    def __init__(self, new: Any) -> None:
        self._sketch = new
        self.state_type = f"datasketches.{type(new).__name__}"
        names = ("serialize", "serialize_updatable")
        self._serialize = next((name for name in names if hasattr(new, name)), "")
        self._size = next((name for name in _SIZES if hasattr(new, name)), "")
        if not self._serialize or not hasattr(new, "deserialize") or not hasattr(new, "update"):
            raise BadValueError(
                f"A sketch of type {type(new).__name__} cannot be state.",
                why="It lacks a binary form that can be updated again.",
                do="Use another sketch, or write the three methods yourself; see docs/state.md.",
            )
        self._empty = self._bytes()
        self._emptied = self._updates = 0
        self._last: tuple[bytes, Intake] | None = None

    @property
    def sketch(self) -> Any:
        """The sketch within.

        Another one that is put in its place, such as a union, shares nothing with the one before, as
        far as the divergence can tell. If it counts distinct items, it is taken to hold as many
        items as its upper bound says, at three standard deviations.
        """
        return self._sketch

    @sketch.setter
    def sketch(self, other: Any) -> None:
        held = self._size or other.is_empty()
        self._updates = 0 if held else math.ceil(other.get_upper_bound(3))
        self._sketch = other
        self._emptied += 1

    def clear(self) -> None:
        """Empty it, as at the end of a window."""
        self.sketch = self._read(self._empty)

    reset = clear  # what some sketches call it

    def update(self, *arguments: Any, **options: Any) -> None:
        """Take items in, as the sketch's own ``update`` does."""
        self._sketch.update(*arguments, **options)
        if not self._size:
            self._updates += int(np.size(arguments[0])) if arguments else 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is being copied there is no sketch yet
            raise AttributeError(name)
        return getattr(self._sketch, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> SketchState:
        return _from_image(type(self._sketch), self._empty, self.backup_state())

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_image, (type(self._sketch), self._empty, self.backup_state())

    def state_divergence(self, backup: bytes) -> float:
        """What only one of the two has taken in."""
        if self._last is None or self._last[0] != backup:
            self._last = (backup, Intake.split(backup)[0])
        return self._intake().apart(self._last[1])

    def backup_state(self) -> bytes:
        """The number of values taken in, then the sketch's own binary form."""
        return self._intake().before(self._bytes())

    def recover_state(self, image: bytes) -> None:
        """The sketch of an image."""
        intake, content = Intake.split(image)
        self._sketch = self._read(content)
        self._emptied, self._updates = intake.emptied, 0 if self._size else int(intake.items)

    def _intake(self) -> Intake:
        if not self._size:
            return Intake(self._emptied, float(self._updates))
        size = getattr(self._sketch, self._size)
        return Intake(self._emptied, float(size() if callable(size) else size))

    def _bytes(self) -> bytes:
        return bytes(getattr(self._sketch, self._serialize)())

    def _read(self, content: bytes) -> Any:
        return type(self._sketch).deserialize(content)


def _from_image(kind: Any, empty: bytes, image: bytes) -> SketchState:
    made = SketchState(kind.deserialize(empty))
    made.recover_state(image)
    return made
