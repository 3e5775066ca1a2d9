"""From columns to numbers: dense features, or hashed ones for millions of possible values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.algorithms.hashing import check_hashable, hash_array
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]
    Places = NDArray[np.int64]

_SEED = 23


class Examples(ABC):
    """Rows as a model sees them: ``margins`` for predicting, ``descend`` for learning."""

    count: int

    @abstractmethod
    def margins(self, weights: Floats, rows: slice) -> Floats:
        """w·x of some rows."""

    @abstractmethod
    def descend(self, weights: Floats, rows: slice, steps: Floats) -> None:
        """Take Σ steps·x off the weights, in place."""

    def touched(self) -> Places | None:
        """Indices of the weights that these rows use, each once; None if they use all."""
        return None


@dataclass
class DenseExamples(Examples):
    """A matrix of features; the last weight is the intercept."""

    matrix: Floats

    def __post_init__(self) -> None:
        self.count = len(self.matrix)

    def margins(self, weights: Floats, rows: slice) -> Floats:
        """w·x + intercept."""
        result: Floats = self.matrix[rows] @ weights[:-1] + weights[-1]
        return result

    def descend(self, weights: Floats, rows: slice, steps: Floats) -> None:
        """One matrix product for a whole mini-batch."""
        weights[:-1] -= steps @ self.matrix[rows]
        weights[-1] -= steps.sum()


@dataclass
class SparseExamples(Examples):
    """Places of the ones in each row, as positions among the batch's own distinct places."""

    places: Places
    """All distinct places of the batch, in order; the last is the intercept."""
    flat: Places
    """Position in ``places`` of each one, row after row."""
    offsets: Places
    """Where each row begins in ``flat``, and the end."""

    def __post_init__(self) -> None:
        self.count = len(self.offsets) - 1
        self._rows = np.repeat(np.arange(self.count), np.diff(self.offsets))

    def touched(self) -> Places | None:
        """The distinct places."""
        return self.places

    def margins(self, weights: Floats, rows: slice) -> Floats:
        """Sum of the weights at the ones of each row, plus the intercept."""
        start, stop, _ = rows.indices(self.count)
        ones = slice(self.offsets[start], self.offsets[stop])
        sums = np.bincount(
            self._rows[ones] - start, weights=weights[self.flat[ones]], minlength=stop - start
        )
        total: Floats = sums + weights[-1]
        return total

    def descend(self, weights: Floats, rows: slice, steps: Floats) -> None:
        """Only the weights at ones move."""
        start, stop, _ = rows.indices(self.count)
        ones = slice(self.offsets[start], self.offsets[stop])
        np.subtract.at(weights, self.flat[ones], steps[self._rows[ones] - start])
        weights[-1] -= steps.sum()


class Features(ABC):
    """Reads examples out of rows. See ``DenseFeatures``, ``VectorFeatures``, ``HashedFeatures``."""

    size: int
    """Number of weights, the intercept included."""

    @abstractmethod
    def columns(self) -> list[str]:
        """Columns that must be in the input."""

    @abstractmethod
    def check(self, types: dict[str, pa.DataType]) -> None:
        """Refuse columns of a wrong type, before any row is read."""

    @abstractmethod
    def read(self, rows: pa.RecordBatch) -> tuple[Examples, Flags]:
        """Examples of the rows that can be used, and which rows these are.

        A row can be used if it has the right length, and no null, NaN or infinity.
        """


class DenseFeatures(Features):
    """One numeric column per feature.

    Example:
        >>> rows = pa.record_batch({"a": [1.0, 2.0], "b": [3, 4]})
        >>> examples, usable = DenseFeatures(["a", "b"]).read(rows)
        >>> examples.matrix.tolist(), usable.tolist()
        ([[1.0, 3.0], [2.0, 4.0]], [True, True])
    """

    def __init__(self, names: Sequence[str]) -> None:
        if not names:
            raise BadValueError("There are no features.", do="Name at least one column.")
        self._names = list(names)
        self.size = len(self._names) + 1

    def columns(self) -> list[str]:
        """The features' columns."""
        return self._names

    def check(self, types: dict[str, pa.DataType]) -> None:
        """All must be numbers."""
        for name in self._names:
            _check_number(name, types[name])

    def read(self, rows: pa.RecordBatch) -> tuple[DenseExamples, Flags]:
        """Copy the columns into one matrix; leave out nulls, NaN and infinities."""
        # Feature after feature in memory: as the columns come, and as fast to multiply with.
        matrix = np.empty((len(self._names), rows.num_rows))
        for at, name in enumerate(self._names):
            matrix[at] = rows.column(name).to_numpy(zero_copy_only=False)
        return _finite(matrix.T)


class VectorFeatures(Features):
    """One column that holds all features of a row as an array of ``length`` numbers."""

    def __init__(self, name: str, length: int) -> None:
        if length < 1:
            raise BadValueError(f"length={length} is no number of features.", do="Give 1 or more.")
        self._name, self._length = name, length
        self.size = length + 1

    def columns(self) -> list[str]:
        """The one column."""
        return [self._name]

    def check(self, types: dict[str, pa.DataType]) -> None:
        """It must be an array of numbers."""
        kind = types[self._name]
        if not pa.types.is_list(kind) and not pa.types.is_fixed_size_list(kind):
            raise BadValueError(
                f"The column {self._name!r} of type {kind} is not an array of features.",
                do="Give an array<double> column, or use DenseFeatures for single columns.",
            )
        _check_number(self._name, kind.value_type)

    def read(self, rows: pa.RecordBatch) -> tuple[DenseExamples, Flags]:
        """The arrays' numbers as one matrix; leave out arrays of another length."""
        column = rows.column(self._name)
        lengths = pc.fill_null(pc.list_value_length(column), -1)
        fits = lengths.to_numpy(zero_copy_only=False) == self._length
        if not fits.all():
            column = column.filter(pa.array(fits))
        flat = column.flatten().to_numpy(zero_copy_only=False)
        examples, finite = _finite(flat.astype(np.float64, copy=False).reshape(-1, self._length))
        fits[fits] = finite
        return examples, fits


class HashedFeatures(Features):
    """Categories: every (column, value) pair is a feature of its own, found by its hash.

    So there may be millions of values, never seen before; two of them share a weight with
    probability 1 / ``buckets``. An array column gives one feature per item. Null is a value.

    Args:
        names: Columns of whole numbers, text, bytes, dates or flags, or arrays of them.
        buckets: Number of weights.
    """

    def __init__(self, names: Sequence[str], buckets: int = 1 << 20) -> None:
        if not names or buckets < 2:
            raise BadValueError(
                f"{len(names)} columns cannot be hashed into {buckets} weights.",
                do="Name at least one column, and give at least 2 buckets.",
            )
        self._names, self._buckets = list(names), buckets
        self.size = buckets + 1

    def columns(self) -> list[str]:
        """The features' columns."""
        return self._names

    def check(self, types: dict[str, pa.DataType]) -> None:
        """All must have exact equality."""
        for name in self._names:
            kind = types[name]
            check_hashable(name, kind.value_type if pa.types.is_list(kind) else kind)

    def read(self, rows: pa.RecordBatch) -> tuple[SparseExamples, Flags]:
        """Hash all columns, and number the batch's distinct places. All rows can be used."""
        lengths = [self._lengths(rows.column(name)) for name in self._names]
        offsets = np.zeros(rows.num_rows + 1, np.int64)
        np.cumsum(np.sum(lengths, axis=0), out=offsets[1:])
        flat = np.empty(int(offsets[-1]), np.int64)
        at = offsets[:-1].copy()
        for seed, (name, length) in enumerate(zip(self._names, lengths, strict=True)):
            column = rows.column(name)
            values = column.flatten() if pa.types.is_list(column.type) else column
            hashes = hash_array(values, _SEED + seed, name)
            inside = np.arange(len(values)) - np.repeat(np.cumsum(length) - length, length)
            flat[np.repeat(at, length) + inside] = hashes % np.uint64(self._buckets)
            at += length
        distinct, positions = np.unique(flat, return_inverse=True)
        places = np.append(distinct, self._buckets)  # the intercept stays last
        return SparseExamples(places, positions, offsets), np.ones(rows.num_rows, np.bool_)

    @staticmethod
    def _lengths(column: pa.Array) -> Places:
        if not pa.types.is_list(column.type):
            return np.ones(len(column), np.int64)
        lengths: Places = pc.fill_null(pc.list_value_length(column), 0).to_numpy(
            zero_copy_only=False
        )
        return lengths.astype(np.int64, copy=False)


def _finite(matrix: Floats) -> tuple[DenseExamples, Flags]:
    # One sum per row is NaN or infinite if any of its features is.
    with np.errstate(invalid="ignore", over="ignore"):
        good = np.isfinite(matrix.sum(axis=1))
    return DenseExamples(matrix if good.all() else matrix[good]), good


def _check_number(name: str, kind: pa.DataType) -> None:
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise BadValueError(
            f"The feature {name!r} of type {kind} is not a number.",
            why="Dense features are multiplied with weights.",
            do="Cast it to double, or use HashedFeatures for categories.",
        )
