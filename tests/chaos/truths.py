"""What each epoch must give, computed from the rows themselves: what clean twins are held against."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    Bag = Counter[tuple[Any, ...]]
    """Rows of all epochs, each with its epoch first."""


def keys_of(table: pa.Table) -> list[Any]:
    return list(table["k"].to_pylist())


def words_of(table: pa.Table) -> list[Any]:
    return [word for line in table["value"].to_pylist() for word in line.split()]


def _so_far(
    tables: list[pa.Table], of: Callable[[pa.Table], list[Any]]
) -> Iterator[tuple[int, set[Any], Counter[Any]]]:
    totals: Counter[Any] = Counter()
    for epoch, table in enumerate(tables):
        totals.update(of(table))
        yield epoch, set(of(table)), totals


def counted(of: Callable[[pa.Table], list[Any]]) -> Callable[[list[pa.Table]], Bag]:
    """Each epoch gives its keys' counts as of then."""
    return lambda tables: Counter(
        (epoch, key, totals[key]) for epoch, now, totals in _so_far(tables, of) for key in now
    )


def heavy(threshold: int) -> Callable[[list[pa.Table]], Bag]:
    """Each epoch gives all keys that have come so often, with no surplus in their estimates."""
    return lambda tables: Counter(
        (epoch, key, total, 0)
        for epoch, _, totals in _so_far(tables, keys_of)
        for key, total in totals.items()
        if total >= threshold
    )


def best(number: int, panes: int) -> Callable[[list[pa.Table]], Bag]:
    """Each epoch, a pane long, gives the most frequent keys of its window, ranked."""

    def truth(tables: list[pa.Table]) -> Bag:
        found: Bag = Counter()
        for epoch in range(len(tables)):
            window = tables[max(0, epoch + 1 - panes) : epoch + 1]
            totals = Counter(key for table in window for key in keys_of(table))
            ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:number]
            found.update((epoch, key, n, rank) for rank, (key, n) in enumerate(ordered, start=1))
        return found

    return truth


def fed_back(tables: list[pa.Table]) -> Bag:
    """Every row carries the feedback of the epoch before."""
    sizes = enumerate(table.num_rows for table in tables)
    return Counter({(epoch, epoch if epoch else -1): rows for epoch, rows in sizes})
