"""One number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.errors import BackupUnreadableError, BadValueError
from tether.core.numbers import rounded_up
from tether.state.arrow import wrapped
from tether.state.columns import Column, as_values
from tether.state.header import (
    ALL_ENTRIES,
    DURABLE,
    IN_FLIGHT,
    LIVE,
    NO_PART,
    PENDING_PART,
    Phase,
)
from tether.state.norms import check_weights
from tether.state.primitive import FULL, Export, Primitive, tagged
from tether.state.updates import total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tether.state.place import Place

_EXACT = 2.0**53  # below it floats hold all integers
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


class Number(Primitive):
    """One number, 0 at first: a total, a clock, a step of an algorithm.

    Made by ``SlotState.number``. Its divergence is the difference to the backup, in either
    direction (AF-Stream 2019, table 8), times a weight. The number and its durable copy are words of
    the slot's header: a change costs a microsecond, nothing is journaled, and the divergence is
    computed only when asked for.

    Example:
        >>> from tether.state import SlotState
        >>> state = SlotState.heap()
        >>> total = state.number("total", dtype="int64")
        >>> state.begin(0)
        >>> total.add([3, 4, 5])
        >>> total += 1
        >>> total.value, total.divergence()
        (13, 13.0)
        >>> state.rollback(), total.value
        (True, 0)
    """

    kind = "number"

    def __init__(self, place: Place, spec: Mapping[str, Any]) -> None:
        super().__init__(place, spec)
        self._column = Column("value", spec["dtype"], 0)
        self._weight = float(spec["weights"].get("value", 1.0))
        page = place.page
        self._words: Any = page.floats if self._column.floating else page.words

    @staticmethod
    def plan(
        name: str, dtype: str, divergence: str, weights: Mapping[str, float] | None = None
    ) -> dict[str, Any]:
        """Check a number's description and give it in the form that is stored.

        Raises:
            BadValueError: The type, divergence or weight cannot be used.
        """
        if dtype not in ("int64", "float64"):
            raise BadValueError(
                f"A number of type {dtype!r} cannot be made.", do="Use int64 or float64."
            )
        if divergence != "difference":
            raise BadValueError(
                f"There is no divergence {divergence!r} for a number.", do="Use difference."
            )
        return {
            "kind": Number.kind,
            "name": name,
            "dtype": dtype,
            "divergence": divergence,
            "weights": check_weights(weights, ["value"]),
        }

    def describe(self) -> dict[str, Any]:
        """Kind, type and divergence as plain values."""
        return dict(self.spec)

    @property
    def value(self) -> Any:
        """The number now: an ``int`` or a ``float``."""
        return self._words[LIVE]

    # Changing

    def add(self, amounts: Any) -> None:
        """Add one number, or all numbers of an array.

        Raises:
            BadValueError: NaN, nulls, or an integer overflow. Nothing is changed.
        """
        self.place.stamp()
        given = self._given(amounts)
        if self._column.floating:
            with np.errstate(invalid="ignore", over="ignore"):
                self._store(self.value + float(given.sum()))
        else:
            self._store(self.value + total(given))

    def put(self, value: Any) -> None:
        """Set the number."""
        self.place.stamp()
        self._store(self._one(value))

    def maximum(self, values: Any) -> None:
        """Raise the number to at least every one of these."""
        self._extreme(max, np.max, values)

    def minimum(self, values: Any) -> None:
        """Lower the number to at most every one of these."""
        self._extreme(min, np.min, values)

    def clear(self) -> None:
        """Set the number to 0, as at the end of a window."""
        self.put(0)

    def __iadd__(self, amounts: Any) -> Number:
        self.add(amounts)
        return self

    def __isub__(self, amounts: Any) -> Number:
        self.add(np.negative(self._given(amounts)))
        return self

    def _extreme(self, keep: Callable[..., Any], reduce: Callable[..., Any], values: Any) -> None:
        self.place.stamp()
        given = self._given(values)
        if len(given):
            self._store(keep(self.value, reduce(given).item()))

    def _given(self, values: Any) -> Any:
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = np.asarray(values).reshape(-1)
        return as_values(self._column, values, len(values))

    def _one(self, value: Any) -> Any:
        given = self._given(value)
        if len(given) != 1:
            raise BadValueError(
                f"The number {self.name!r} got {len(given)} values.", do="Give one number."
            )
        return given[0].item()

    def _store(self, value: Any) -> None:
        if isinstance(value, float) and math.isnan(value):
            raise BadValueError(
                f"The number {self.name!r} would become NaN.",
                why="Infinities of opposite sign were added.",
                do="Keep infinite values out of sums.",
            )
        if isinstance(value, int) and not _SMALLEST <= value <= _LARGEST:
            raise BadValueError(
                f"The number {self.name!r} would overflow a 64-bit integer.",
                why="The sum is beyond ±9.2e18.",
                do="Declare it float64, or add smaller units.",
            )
        self._words[LIVE] = value

    # Backups

    def divergence(self, *, exact: bool = False) -> float:
        """Difference to the backup times the weight, never too small; 0 if not tracked."""
        del exact  # it always is
        if not self.place.track or not self.dirty_entries():
            return 0.0
        live, durable = self.value, self._words[DURABLE]
        if not (math.isfinite(live) and math.isfinite(durable)):
            return math.inf if self._weight else 0.0
        size: float = abs(live - durable)
        if isinstance(size, int):
            size = rounded_up(size)
        elif not (live.is_integer() and durable.is_integer() and max(live, durable, size) < _EXACT):
            size = math.nextafter(size, math.inf)
        if self._weight == 1.0:
            return size
        return math.nextafter(size * self._weight, math.inf) if self._weight else 0.0

    def dirty_entries(self) -> int:
        """1 if the number differs from the backup."""
        words = self.place.page.words
        return int(self.place.track and words[LIVE] != words[DURABLE])

    def export(self, target: float, rounding: float = 0.0) -> Export:
        """Take the number out if its divergence exceeds ``target``; it is then durable."""
        del rounding
        self._check_target(target)
        export = self._taken(target)
        if export.batches:
            self.place.page.words[DURABLE] = self.place.page.words[LIVE]
        return export

    def export_full(self, rounding: float = 0.0) -> Export:
        """Take the number out."""
        del rounding
        self.place.stamp()
        self._expect_none_pending()
        before = self.divergence()
        self.place.page.words[DURABLE] = self.place.page.words[LIVE]
        return Export([self._batch()], 1, before, 0.0, full=True)

    def begin_export(self, target: float) -> Export:
        """Take out what ``export`` would, but count it as durable only when it is settled."""
        self._check_target(target)
        export, words = self._taken(target), self.place.page.words
        if export.batches:
            words[IN_FLIGHT] = words[LIVE]
            words[PENDING_PART] = ALL_ENTRIES
        return export

    def settle_export(self) -> None:
        """Count what ``begin_export`` took out as durable."""
        self.place.stamp()
        words = self.place.page.words
        if words[PENDING_PART]:
            words[DURABLE] = words[IN_FLIGHT]
            words[PENDING_PART] = NO_PART

    def abandon_export(self) -> None:
        """Forget what ``begin_export`` took out."""
        self.place.stamp()
        self.place.page.words[PENDING_PART] = NO_PART

    def _taken(self, target: float) -> Export:
        before = self.divergence()
        if before <= target and (target > 0 or not self.dirty_entries()):
            return Export([], 0, 0.0, before, full=False)
        return Export([self._batch()], 1, before, 0.0, full=True)

    def _batch(self) -> pa.RecordBatch:
        value = wrapped(np.array([self.value], self._column.kind))
        return tagged(pa.RecordBatch.from_pydict({"value": value}), FULL)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take a backed-up value as both live and durable."""
        self.place.expect(Phase.RESTORING)
        for batch in batches:
            if batch.schema.names != ["value"] or batch.num_rows != 1:
                raise BackupUnreadableError(
                    f"A backup of number {self.name!r} does not fit it.",
                    why=f"Its columns are {batch.schema.names}, with {batch.num_rows} rows.",
                    do="Restore with the program that wrote the backup.",
                )
            self._words[LIVE] = self._words[DURABLE] = self._one(batch.column("value"))

    # Epochs: all is in words that the header rolls back.

    def create(self) -> None:
        """Nothing to set up: a blank page is a 0."""

    def begin(self) -> None:
        """Does nothing: there is no journal."""

    def begin_step(self) -> None:
        """Does nothing: changed entries are not listed."""

    def commit(self) -> None:
        """Nothing to do: changes are in the header as they are made."""

    def undo(self) -> None:
        """Does nothing: all values are words of the header."""

    def unstamp(self) -> None:
        """Does nothing: no entry has an epoch stamp."""

    def refresh(self) -> None:
        """Nothing is kept outside of the header."""
