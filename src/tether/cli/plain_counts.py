"""What the ready counts mean, in plain Python: what the drill and the demo are judged by."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds

from tether.policies.parse_accuracy import parse_accuracy
from tether.testing.judge import Measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from tether.testing.judge import Answer

_FORMATS = ("parquet", "json", "csv")
_SPACE = re.compile(r"[ \t\n\x0b\f\r]+")
"""What Java calls white space."""


def true_counts(arguments: Sequence[str]) -> Answer:
    """The right answer of a whole ``tether run``, from the files that it reads.

    Args:
        arguments: Those of ``tether run``.
    """
    source = Path(values_of("--input", arguments)[-1])
    if arguments[0] == "wordcount":
        return {"count": dict(_words(source))}
    keys, sums = values_of("--key", arguments), values_of("--sum", arguments)
    found: dict[str, dict[Any, Any]] = {"count": {}} | {f"sum({name})": {} for name in sums}
    for row in _rows(source):
        key = _key(row, keys)
        found["count"][key] = found["count"].get(key, 0) + 1
        for name in sums:
            if row[name] is not None:
                column = found[f"sum({name})"]
                column[key] = column.get(key, 0) + row[name]
    return dict(found)


def answer_of(table: pa.Table, arguments: Sequence[str]) -> Answer:
    """The answer that a run has written."""
    keys = ["word"] if arguments[0] == "wordcount" else values_of("--key", arguments)
    rows = table.to_pylist()
    return {
        name: {_key(row, keys): row[name] for row in rows if row[name] is not None}
        for name in table.column_names
        if name not in keys
    }


def measure_of(arguments: Sequence[str]) -> Measure:
    """The distance in which its bound is given: all columns are entries of one state."""
    if arguments[0] == "wordcount":
        return Measure("max")
    asked = [parse_accuracy(text).divergence for text in values_of("--accuracy", arguments)]
    return Measure(["l1", *values_of("--divergence", arguments), *asked][-1])


def together(answer: Answer, only: Iterable[Any] | None = None) -> Answer:
    """All columns as one, of some keys."""
    chosen = None if only is None else set(only)
    return {
        "": {
            (name, key): value
            for name, entries in answer.items()
            for key, value in entries.items()
            if chosen is None or key in chosen
        }
    }


def values_of(option: str, arguments: Sequence[str]) -> list[str]:
    """The values of an option that may be repeated.

    Example:
        >>> values_of("--key", ["counts", "--key", "a", "--key=b", "--slots", "2"])
        ['a', 'b']
    """
    found = [arguments[at + 1] for at, word in enumerate(arguments[:-1]) if word == option]
    return found + [w.partition("=")[2] for w in arguments if w.startswith(f"{option}=")]


def _words(source: Path) -> Counter[Any]:
    words: Counter[Any] = Counter()
    for file in sorted(source.iterdir()):
        if file.is_file() and not file.name.startswith(("_", ".")):
            text = file.read_text(encoding="utf-8").lower()
            words.update((word,) for word in _SPACE.split(text) if word)
    return words


def _rows(source: Path) -> Iterable[dict[str, Any]]:
    for form in _FORMATS:
        files = sorted(source.glob(f"*.{form}"))
        if files:
            for batch in ds.dataset(files, format=form).to_batches():
                yield from batch.to_pylist()


def _key(row: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The values that name a key; NaN is one, as for Spark."""
    whole = (row[name] for name in names)
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in whole)
