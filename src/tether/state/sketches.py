"""Sketches of Apache DataSketches as state (extra ``sketches``).

Every sketch has a binary format of its own, read by its own library; nothing is pickled.
"""

from __future__ import annotations

from typing import Any

from tether.core.errors import BadValueError

_SIZES = ("n", "total_weight", "get_total_weight", "get_estimate")
"""What a sketch may call the size of its stream, or of the set that it counts."""


def sketch(new: Any) -> SketchState:
    """A DataSketches sketch in the form that ``SlotState.object`` takes.

    Its divergence is by how much more, or less, of the stream the live sketch has taken in than the
    backup: items for quantile sketches, weight for frequency sketches, and the difference of the
    estimates for those that count distinct items.

    Args:
        new: An empty sketch with a binary form: kll, req, quantiles, tdigest, count_min,
            frequent_strings, hll, cpc and others.

    Raises:
        BadValueError: It has no binary form that can be updated again, or says nothing of its size.

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
        self.sketch = new
        self.state_type = f"datasketches.{type(new).__name__}"
        names = ("serialize", "serialize_updatable")
        self._serialize = next((name for name in names if hasattr(new, name)), "")
        self._size = next((name for name in _SIZES if hasattr(new, name)), "")
        if not self._serialize or not self._size or not hasattr(new, "deserialize"):
            raise BadValueError(
                f"A sketch of type {type(new).__name__} cannot be state.",
                why="It lacks a binary form that can be updated again, or a size.",
                do="Use another sketch, or write the three methods yourself; see docs/state.md.",
            )
        self._last: tuple[bytes, float] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "sketch":  # while it is being copied there is none yet
            raise AttributeError(name)
        return getattr(self.sketch, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> SketchState:
        return SketchState(self._read(self.backup_state()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_image, (type(self.sketch), self.backup_state())

    def state_divergence(self, backup: bytes) -> float:
        """Difference of the sizes."""
        if self._last is None or self._last[0] != backup:
            self._last = (backup, self._size_of(self._read(backup)))
        return abs(self._size_of(self.sketch) - self._last[1])

    def backup_state(self) -> bytes:
        """The sketch's own binary form."""
        return bytes(getattr(self.sketch, self._serialize)())

    def recover_state(self, image: bytes) -> None:
        """The sketch of an image."""
        self.sketch = self._read(image)

    def _read(self, image: bytes) -> Any:
        return type(self.sketch).deserialize(image)

    def _size_of(self, some: Any) -> float:
        size = getattr(some, self._size)
        return float(size() if callable(size) else size)


def _from_image(kind: Any, image: bytes) -> SketchState:
    return SketchState(kind.deserialize(image))
