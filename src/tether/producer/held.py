"""What a producer has sent and still holds: until it is acknowledged, nobody else may have it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


class Report(NamedTuple):
    """How a producer ended."""

    acked: int
    """Number of the newest row that the gateway has; rows are numbered from 1."""
    unacked: pa.Table
    """Rows that were taken over from the program and that the gateway may not have."""


class Held(NamedTuple):
    """Rows that were sent together, or a boundary."""

    first: int
    last: int
    rows: pa.RecordBatch | None
    """The rows; None for a boundary."""
    boundary: float | None = None


class HeldRows:
    """All that is not acknowledged, in order of the producer's numbers.

    Example:
        >>> import pyarrow as pa
        >>> held = HeldRows()
        >>> held.add(Held(1, 3, pa.record_batch({"k": [7, 8, 9]})))
        >>> held.release(2)
        >>> [(one.first, one.rows["k"].to_pylist()) for one in held]
        [(3, [9])]
    """

    def __init__(self) -> None:
        self._held: deque[Held] = deque()

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held)

    @property
    def newest(self) -> Held:
        """What was sent last."""
        return self._held[-1]

    def add(self, one: Held) -> None:
        """Rows are about to be sent; their numbers are above all others."""
        self._held.append(one)

    def release(self, upto: int) -> None:
        """Let go of everything up to a number: somebody else has it."""
        while self._held and self._held[0].last <= upto:
            self._held.popleft()
        if self._held and self._held[0].first <= upto:
            part = self._held.popleft()
            assert part.rows is not None
            rest = part.rows.slice(upto + 1 - part.first)
            self._held.appendleft(Held(upto + 1, part.last, rest))
