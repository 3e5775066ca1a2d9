"""What the tasks do that read files: read a part of them in Arrow, fold it, and pack it by slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tether.sources.folding.fold import CannotFoldError, folded, merging
from tether.sources.folding.parcels import packed_rows
from tether.spark.tasks.pipe import acknowledge_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tether.spark.folding.epoch_files import FileFolding

BYTES_AT_ONCE = 64 << 20
"""Most bytes that a task reads before it folds them; this limits its memory."""


class Piece(NamedTuple):
    """A part of a file."""

    path: str
    groups: tuple[int, ...]
    """Its row groups."""
    rows: int


class ReadTask:
    """What ``mapInArrow`` calls in a task that reads: its input is the numbers of its parts.

    Args:
        parts: The pieces of all parts.
        folding: How they are read and folded.
        slots: How many slots there are.
    """

    def __init__(self, parts: Sequence[Sequence[Piece]], folding: FileFolding, slots: int) -> None:
        self._parts, self._folding, self._slots = parts, folding, slots

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the parcels of the task's parts."""
        acknowledge_at_once()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_parcels(self._parts[number], self._folding, self._slots)


def read_parcels(
    pieces: Sequence[Piece], folding: FileFolding, slots: int
) -> Iterator[pa.RecordBatch]:
    """The rows of some pieces, folded, as parcels with their slots.

    Raises:
        CannotFoldError: They cannot be read, or not as Spark reads them. Then Spark reads them: it
            either can, or raises the right error.
    """
    fold = folding.fold
    try:
        parts = [folded(rows, fold) for rows in _read(pieces, folding)]
        if len(parts) > 1:
            parts = [folded(pa.concat_tables(parts), merging(fold))]
        for part in parts:
            yield from packed_rows(part, fold, slots)
    except CannotFoldError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        told = f"{type(error).__name__}: {error}"
        raise CannotFoldError("Files could not be read.", why=told) from error


def _read(pieces: Sequence[Piece], folding: FileFolding) -> Iterator[pa.Table]:
    """Rows of the columns that are needed, in batches."""
    tables: list[pa.Table] = []
    for piece in pieces:
        # Not mapped: of a file that somebody cuts off meanwhile, the process would end.
        with pq.ParquetFile(piece.path) as file:
            check_columns(file.schema_arrow, folding)
            names = list(dict.fromkeys(folding.in_files))
            groups = list(piece.groups)
            table = file.read_row_groups(groups, columns=names, use_threads=False)
        columns = [
            table[name].cast(field.type)
            for name, field in zip(folding.in_files, folding.schema, strict=True)
        ]
        table = pa.table(columns, schema=folding.schema)
        tables.append(split_in_words(table) if folding.words else table)
        if sum(each.nbytes for each in tables) >= BYTES_AT_ONCE:
            yield pa.concat_tables(tables)
            tables = []
    if tables:
        yield pa.concat_tables(tables)


def check_columns(found: pa.Schema, folding: FileFolding) -> None:
    """Refuse a file whose columns are others than those that the user has told Spark.

    Raises:
        CannotFoldError: One is missing, is of another type, or could be one of two.
    """
    lower = [name.lower() for name in found.names]
    for name, field in zip(folding.in_files, folding.schema, strict=True):
        if name not in found.names or lower.count(name.lower()) != 1:
            raise CannotFoldError(f"A file has no column {name!r}, or several.")
        kind = found.field(name).type
        if pa.types.is_large_string(kind):
            kind = pa.string()  # what differs is how Arrow keeps it in memory
        if kind != field.type:
            raise CannotFoldError(f"The column {name!r} of a file is of type {kind}.")


def split_in_words(lines: pa.Table) -> pa.Table:
    r"""What ``tether.algorithms.word_count.words`` makes of lines, by Arrow.

    Raises:
        CannotFoldError: They contain more than ASCII, where only Java's rules for lower case are right.

    Example:
        >>> split_in_words(pa.table({"word": [" To be\tor", None, "", "not"]})).to_pydict()
        {'word': ['to', 'be', 'or', 'not']}
    """
    (name,), (text,) = lines.column_names, lines.columns
    if pc.all(pc.string_is_ascii(text)).as_py() is False:
        raise CannotFoldError("There is more than ASCII in the text.")
    words = pc.list_flatten(pc.ascii_split_whitespace(pc.ascii_lower(text)))
    return pa.table({name: words.filter(pc.not_equal(words, ""))})
