"""The input files that all contenders share, and the right answer, by numpy and Arrow alone.

An answer is compared by a digest that every system can compute in plain SQL: the number of keys, the
sum of all totals, and a checksum over every single (key, total).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tether.data import zipf_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.scenario import Scenario

PRIME = 65_537
"""Small enough for a sum of products over ten million keys to fit 64 bits."""
SPREAD = 2_654_435_761
"""Odd: scatters keys over the 64-bit range without making two of them alike."""


class Digest(NamedTuple):
    """What is compared of two answers."""

    keys: int
    total: int
    checksum: int


def columns_of(scenario: Scenario) -> list[str]:
    """Value columns of a keyed sum."""
    return [f"v{number}" for number in range(scenario.columns)]


def schema_of(scenario: Scenario) -> str:
    """The files' schema, as Spark writes it."""
    if scenario.algorithm == "word-count":
        return "value string"
    return ", ".join(["k long", *(f"{name} long" for name in columns_of(scenario))])


def tables(scenario: Scenario) -> Iterator[pa.Table]:
    """The epochs of a scenario: all keys once, then warm-up and measured epochs."""
    if scenario.algorithm == "word-count":
        yield from zipf_text(
            scenario.total_epochs,
            scenario.rows,
            words=scenario.keys,
            skew=scenario.skew,
            seed=scenario.seed,
        )
        return
    random = np.random.default_rng(scenario.seed)
    names = random.permutation(scenario.keys).astype(np.int64) * np.int64(SPREAD)
    for part in np.array_split(names, scenario.loading):
        yield _rows(scenario, part, random)
    ranks = _zipf(scenario) if scenario.distribution == "zipf" else None
    for _ in range(scenario.warm_up + scenario.epochs):
        if ranks is not None:
            drawn = names[np.searchsorted(ranks, random.random(scenario.rows))]
        else:
            some = names
            if scenario.touched:
                some = random.choice(names, scenario.touched, replace=False)
            drawn = random.choice(some, scenario.rows)
        yield _rows(scenario, drawn, random)


def _rows(scenario: Scenario, keys: NDArray[np.int64], random: np.random.Generator) -> pa.Table:
    values = {name: random.integers(1, 101, len(keys)) for name in columns_of(scenario)}
    return pa.table({"k": keys, **values})


MEAN_VALUE = 50.5
"""Of the values that ``_rows`` draws."""


def _zipf(scenario: Scenario) -> NDArray[np.float64]:
    shares = np.cumsum(np.arange(1, scenario.keys + 1, dtype=np.float64) ** -scenario.skew)
    return shares / shares[-1]


def truth(scenario: Scenario, files: Iterable[Path]) -> Digest:
    """The digest of the answer over some files."""
    parts = [_folded(scenario, pq.read_table(path)) for path in files]
    whole = (
        pa.concat_tables(parts)
        .group_by("key")
        .aggregate([(name, "sum") for name in parts[0].column_names if name != "key"])
    )
    totals = [whole[name] for name in whole.column_names if name != "key"]
    return digest_of(whole["key"], totals)


def _folded(scenario: Scenario, table: pa.Table) -> pa.Table:
    if scenario.algorithm == "word-count":
        counted = count_words(table["value"])
        return pa.table({"key": counted.field("values"), "n": counted.field("counts")})
    names = columns_of(scenario)
    folded = table.group_by("k").aggregate([(name, "sum") for name in names])
    columns = {name: folded[f"{name}_sum"] for name in names}
    return pa.table({"key": folded["k"], **columns})


def count_words(lines: Any) -> pa.StructArray:
    """Words of lines with their counts, in Arrow."""
    split = pc.split_pattern(pa.chunked_array(lines).combine_chunks(), " ")
    return pc.value_counts(pc.list_flatten(split))


def digest_of(keys: Any, totals: list[Any]) -> Digest:
    """The digest of an answer in memory: keys and one array of totals a column.

    Example:
        >>> digest_of(pa.array([3, 5]), [pa.array([10, 20])])
        Digest(keys=2, total=30, checksum=130)
        >>> digest_of(pa.array(["ab"]), [pa.array([2])])  # (131·97 + 7·98 + 2) · 2
        Digest(keys=1, total=2, checksum=26790)
    """
    numbers = _key_numbers(keys) % PRIME
    mixed = np.zeros(len(numbers), np.int64)
    total = 0
    for place, column in enumerate(totals):
        values = np.asarray(column).astype(np.int64)
        mixed += (2 ** (place + 1) - 1) * values
        total += int(values.sum())
    return Digest(len(numbers), total, int((numbers * (mixed % PRIME)).sum()))


def _key_numbers(keys: Any) -> NDArray[np.int64]:
    if pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type):
        words = keys.to_pylist()
        return np.array([131 * ord(w[0]) + 7 * ord(w[-1]) + len(w) for w in words], np.int64)
    return np.asarray(keys).astype(np.int64)


def digest_sql(scenario: Scenario, key: str, totals: list[str]) -> list[str]:
    """The digest as three SQL expressions that Spark, Flink and DuckDB understand alike."""
    if scenario.algorithm == "word-count":
        key = f"131 * ASCII({key}) + 7 * ASCII(REVERSE({key})) + CHAR_LENGTH({key})"
    mixed = " + ".join(f"{2 ** (place + 1) - 1} * {name}" for place, name in enumerate(totals))
    whole = " + ".join(totals)
    prime = f"CAST({PRIME} AS BIGINT)"  # Flink's MOD has the type of its second argument
    return ["COUNT(*)", f"SUM({whole})", f"SUM(MOD({key}, {prime}) * MOD({mixed}, {prime}))"]


def write_csv(source: Path, directory: Path) -> None:
    """The same rows in the same order as CSV, for a peer that cannot read Parquet as installed."""
    if directory.is_dir():
        return
    partial = directory.with_name(directory.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    options = pa_csv.WriteOptions(include_header=False, quoting_style="none")
    for path in sorted(source.glob("*.parquet")):
        pa_csv.write_csv(pq.read_table(path), partial / f"{path.stem}.csv", options)
    partial.rename(directory)
