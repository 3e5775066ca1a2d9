"""Which files an epoch has, as Spark has planned it, and how the tasks that read them share them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.sql.pandas.types import from_arrow_schema

from tether.sources.folding.fold import CannotFoldError
from tether.sources.folding.parcels import SHAPE
from tether.spark.folding.held import Holder, can_hold
from tether.spark.folding.reading import Piece, ReadTask, check_columns, read_parcels
from tether.spark.tasks.mapping import ArrowMaps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from tether.sources.folding.fold import Fold
    from tether.spark.folding.folding import Parcels

FEW_ROWS = 20_000
"""Most rows that the driver reads and folds in one go, without threads."""
FEW_BYTES = 300_000
"""Most bytes of folded rows that go to each task with its code; more of them are held for it."""
DRIVERS_BYTES = 1 << 27
"""Most bytes of an epoch's columns that the driver folds at all; more of them are read by tasks."""

MOST_FILES = 512
"""Most files for that; opening more would take longer than it saves."""

MOST_BYTES = 1 << 29
"""Most bytes of an epoch's columns: tasks hold in memory what they fold, and Spark can use the disk."""

_FILE = re.compile(
    r"path: (.*?), range: (\d+)-(\d+), partition values: (\[.*?\])(?=, path: |$)", re.DOTALL
)
"""How Spark shows a part of a file."""


_SHAPE = from_arrow_schema(SHAPE)


@dataclass(frozen=True)
class FileFolding:
    """How the rows of an operator are folded where its files are read.

    Args:
        fold: What is computed.
        schema: The columns that it needs, of the types that the files must have.
        in_files: Their names in the files.
        tasks: How many tasks read at a time.
        words: Whether the one column is text, of which each word is a row.
    """

    fold: Fold
    schema: pa.Schema
    in_files: tuple[str, ...]
    tasks: int
    words: bool = False

    @property
    def told(self) -> str:
        """A short description, for people."""
        return "in Arrow, where the files are read"

    def for_slots(self, slots: int) -> FoldedFiles:
        """Gives the rows of each epoch to this number of slots."""
        return FoldedFiles(self, slots)


class FoldedFiles:
    """Makes parcels for slots of the files of each epoch.

    Args:
        folding: How they are read and folded.
        slots: How many slots there are.
    """

    def __init__(self, folding: FileFolding, slots: int) -> None:
        self._folding, self._slots = folding, slots
        self._shown: Callable[[Any], Any] | None = None
        self._maps: ArrowMaps | None = None
        self._holder = Holder()
        self._numbers: dict[int, DataFrame] = {}
        """For so many parts, a row with the number of each in a partition of its own."""
        self.rows_read = 0
        """Rows of the newest epoch; Spark, which does not see them, counts none."""
        self.why_not = ""
        """Why the newest epoch is read by Spark, if it is."""

    def of(self, rows: DataFrame) -> DataFrame | Parcels | None:
        """The rows of an epoch, folded and in parcels with their slots; None if Spark must read them.

        The driver folds them itself, which takes less time than Spark needs for a stage that reads and
        a shuffle; where they are very many, tasks do.
        """
        self.rows_read, self.why_not = 0, ""
        try:
            if self._shown is None:
                self._shown = rows.sparkSession._jvm.scala.runtime.ScalaRunTime.stringOf
            pieces, size = pieces_of(files_of(rows, self._shown), self._folding)
            count = sum(piece.rows for piece in pieces)
            drivers = count <= FEW_ROWS or (size <= DRIVERS_BYTES and can_hold())
            found = self._by_driver(pieces, count) if drivers else None
        except CannotFoldError as why:
            self.why_not = str(why)
            return None
        self.rows_read = count
        return self._by_tasks(rows, pieces) if found is None else found

    def _by_tasks(self, rows: DataFrame, pieces: Sequence[Piece]) -> DataFrame:
        parts = shared(pieces, self._folding.tasks)
        task = ReadTask(parts, self._folding, self._slots)
        if self._maps is None:  # all epochs of one placement belong to one session
            self._maps = ArrowMaps(rows.sparkSession)
        if len(parts) not in self._numbers:
            self._numbers[len(parts)] = rows.sparkSession.range(0, len(parts), 1, len(parts))
        return self._maps.mapped(self._numbers[len(parts)], task, _SHAPE)

    def _by_driver(self, pieces: Sequence[Piece], count: int) -> Parcels | None:
        """The parcels of each slot; None where tasks had better make them."""
        parts = shared(pieces, 1 if count <= FEW_ROWS else self._folding.tasks)

        def read(part: Sequence[Piece]) -> list[tuple[int, bytes]]:
            made = read_parcels(part, self._folding, self._slots)
            return [(one.column(0)[0].as_py(), one.column(1)[0].as_py()) for one in made]

        found: dict[int, list[bytes]] = {}
        if len(parts) > 1:
            with ThreadPoolExecutor(len(parts)) as threads:  # Arrow lets others work beside it
                made = [one for each in threads.map(read, parts) for one in each]
        else:
            made = [one for part in parts for one in read(part)]
        for slot, parcel in made:
            found.setdefault(slot, []).append(parcel)
        if sum(len(parcel) for _, parcel in made) <= FEW_BYTES:
            return {slot: tuple(parcels) for slot, parcels in found.items()}
        return dict(self._holder.hold(found)) if can_hold() else None


def files_of(rows: DataFrame, shown: Callable[[Any], Any]) -> list[str]:
    """Local paths of the files that the rows of an epoch are in, each once.

    Spark has planned already which task would read what; it has not read anything. Every call to the JVM
    takes a large part of a millisecond, so there are as few as possible.

    Args:
        rows: The epoch's rows.
        shown: Scala's way to show an array.

    Raises:
        CannotFoldError: The plan does not say, or they are not plain local files.
    """
    found: dict[str, None] = {}
    try:
        parts = rows._jdf.queryExecution().logical().rdd().partitions()
        for at in range(len(parts)):
            for path in _files_of_part(str(shown(parts[at].files()))):
                found[path] = None
            if len(found) > MOST_FILES:
                raise CannotFoldError(f"There are more than {MOST_FILES} files in an epoch.")
    except Py4JError as error:  # only scans of files have these methods
        raise CannotFoldError("Spark's plan of an epoch is not of files alone.") from error
    return list(found)


def _files_of_part(text: str) -> list[str]:
    text = text.removeprefix("Array(").removesuffix(")")
    matches = list(_FILE.finditer(text))
    if ", ".join(match.group(0) for match in matches) != text:
        raise CannotFoldError("Spark shows files in another way than expected.")
    return [_local(match.group(1), match.group(4)) for match in matches]


def _local(url: str, values: str) -> str:
    """The path of a local file that has no columns in its name.

    Raises:
        CannotFoldError: It is none.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc:
        raise CannotFoldError("Files are not in a local file system.")
    if values != "[empty row]" or "=" in path:
        raise CannotFoldError("Columns may be in the names of folders.")
    return path


def pieces_of(paths: Sequence[str], folding: FileFolding) -> tuple[list[Piece], int]:
    """All row groups of some files, and about the memory of their columns, as their footers say.

    Raises:
        CannotFoldError: A file cannot be read, its columns are others than expected, or all together are
            too large to be held in memory.
    """
    pieces, size = [], 0
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                check_columns(file.schema_arrow, folding)
                meta = file.metadata
                counts = [meta.row_group(at).num_rows for at in range(meta.num_row_groups)]
                size += _bytes_of(meta, folding)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise CannotFoldError(f"The file {path} cannot be read.", why=str(error)) from error
        if size > MOST_BYTES:
            raise CannotFoldError(f"An epoch has more than {MOST_BYTES >> 20} MB in its columns.")
        pieces += [Piece(path, (at,), rows) for at, rows in enumerate(counts) if rows]
    return pieces, size


def _bytes_of(meta: pq.FileMetaData, folding: FileFolding) -> int:
    """About the memory of the columns that are needed, from a file's footer."""
    if not meta.num_row_groups:
        return 0
    first = meta.row_group(0)
    paths = [first.column(at).path_in_schema for at in range(first.num_columns)]
    wanted = [at for at, path in enumerate(paths) if path in folding.in_files]
    read = 0
    for group in map(meta.row_group, range(meta.num_row_groups)):
        # Dictionaries make a column smaller in the file than it is in memory.
        read += sum(
            max(group.column(at).total_uncompressed_size, 8 * group.num_rows) for at in wanted
        )
    return read


def shared(pieces: Sequence[Piece], tasks: int, most: int = 4_000_000) -> list[list[Piece]]:
    """The pieces in parts of about the same number of rows, one for each task.

    Example:
        >>> pieces = [Piece("a", (at,), 10) for at in range(4)] + [Piece("b", (0,), 10)]
        >>> for part in shared(pieces, 2):
        ...     print(part)
        [Piece(path='a', groups=(0, 1, 2), rows=30)]
        [Piece(path='a', groups=(3,), rows=10), Piece(path='b', groups=(0,), rows=10)]
    """
    total = sum(piece.rows for piece in pieces)
    if not total:
        return []
    number = min(len(pieces), max(tasks, -(-total // most)))
    parts: list[list[Piece]] = [[] for _ in range(number)]
    before = 0
    for piece in pieces:
        part = parts[min(before * number // total, number - 1)]
        before += piece.rows
        if part and part[-1].path == piece.path:
            path, groups, rows = part.pop()
            part.append(Piece(path, groups + piece.groups, rows + piece.rows))
        else:
            part.append(piece)
    return [part for part in parts if part]
