"""CSV whose bad rows are counted and kept aside, never dropped in silence."""

from __future__ import annotations

import io
import lzma
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
_WHOLE = r"^\s*[-+]?\d{1,18}\s*$"


@dataclass(frozen=True)
class Loaded:
    """Rows that were read, and what became of the others.

    Attributes:
        rows: The good rows.
        unparsable: Number of rows that were not.
        reasons: How many rows each reason made unusable; a row may have several.
        aside: The text of unusable rows, if it was asked for.
    """

    rows: pa.Table
    unparsable: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    aside: list[str] = field(default_factory=list)

    def report(self) -> str:
        """One line for a log.

        Example:
            >>> Loaded(pa.table({"a": [1]}), 2, {"a: not a number": 2}).report()
            '1 rows read, 2 unparsable (a: not a number: 2)'
        """
        why = ", ".join(f"{reason}: {count}" for reason, count in self.reasons.items())
        read = f"{self.rows.num_rows} rows read"
        return f"{read}, {self.unparsable} unparsable" + (f" ({why})" if why else "")


def read_csv(
    source: Path | bytes,
    types: Mapping[str, pa.DataType],
    *,
    names: Sequence[str] | None = None,
    missing: Sequence[str] = ("", "NA"),
    required: Sequence[str] | None = None,
    keep_aside: bool = False,
) -> Loaded:
    r"""Read a CSV file, compressed with xz or not; set rows apart that do not parse.

    A row is unparsable if it has another number of fields, if a number is none, or if a required
    field is missing.

    Args:
        source: The file, or its bytes.
        types: Columns wanted, with their types: whole numbers, floating point, or text.
        names: All columns of the file, where it has no header line.
        missing: What stands for a missing value.
        required: Columns that must not be missing; by default all wanted.
        keep_aside: Whether to keep the text of unparsable rows.

    Example:
        >>> read = read_csv(b"a,b\n1,x\ntwo,y\n3\n", {"a": pa.int64(), "b": pa.string()})
        >>> read.rows.num_rows, read.unparsable
        (1, 2)

    Raises:
        BadValueError: The file is no CSV at all, or lacks a wanted column.
    """
    aside: list[str] = []
    reasons: dict[str, int] = {}

    def wrong_width(row: pcsv.InvalidRow) -> str:
        reason = f"not {row.expected_columns} fields"
        reasons[reason] = reasons.get(reason, 0) + 1
        aside.append(row.text)
        return "skip"

    table = _as_text(source, names, wrong_width)
    missing_columns = [name for name in types if name not in table.schema.names]
    if missing_columns:
        raise BadValueError(
            f"The file has no columns {missing_columns}.",
            why=f"It has {table.schema.names}.",
            do="Check that it is the right file.",
        )
    unparsable = sum(reasons.values())
    good = np.ones(table.num_rows, np.bool_)
    columns: dict[str, pa.ChunkedArray] = {}
    for name, kind in types.items():
        needed = required is None or name in required
        columns[name], bad = _parsed(table[name], kind, missing, needed=needed)
        if bad.any():
            reasons[f"{name}: not a {kind}"] = int(np.count_nonzero(bad))
            good &= ~bad
    bad_rows = np.flatnonzero(~good)
    if keep_aside and len(bad_rows):
        aside += [",".join(row.values()) for row in table.take(pa.array(bad_rows)).to_pylist()]
    rows = pa.table(columns)
    return Loaded(
        rows if good.all() else rows.filter(pa.array(good)),
        unparsable + len(bad_rows),
        reasons,
        aside if keep_aside else [],
    )


def _as_text(source: Path | bytes, names: Sequence[str] | None, handler: object) -> pa.Table:
    data = source if isinstance(source, bytes) else source.read_bytes()
    if data[:6] == b"\xfd7zXZ\x00":
        data = lzma.decompress(data)
    header = list(names) if names else data.split(b"\n", 1)[0].decode().strip().split(",")
    header = [name.strip('"') for name in header]
    try:
        return pcsv.read_csv(
            io.BytesIO(data),
            read_options=pcsv.ReadOptions(column_names=header, skip_rows=0 if names else 1),
            parse_options=pcsv.ParseOptions(invalid_row_handler=handler),
            convert_options=pcsv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise BadValueError("The file cannot be read as CSV.", why=str(error)) from error


def _parsed(
    text: pa.ChunkedArray, kind: pa.DataType, missing: Sequence[str], *, needed: bool
) -> tuple[pa.ChunkedArray, np.ndarray]:
    """A column as its type, and which rows of it are unparsable."""
    absent = pc.is_in(text, pa.array(list(missing)))
    bad = absent if needed else pc.and_(absent, False)
    if pa.types.is_string(kind):
        return pc.if_else(absent, pa.scalar(None, pa.string()), text), _flags(bad)
    pattern = _WHOLE if pa.types.is_integer(kind) else _NUMBER
    fits = pc.match_substring_regex(text, pattern)
    bad = pc.or_(bad, pc.and_not(pc.invert(fits), absent))
    number = pc.utf8_trim_whitespace(pc.if_else(fits, text, pa.scalar(None, pa.string())))
    return number.cast(kind), _flags(bad)


def _flags(values: pa.ChunkedArray) -> np.ndarray:
    flags: np.ndarray = values.to_numpy().astype(np.bool_)
    return flags
