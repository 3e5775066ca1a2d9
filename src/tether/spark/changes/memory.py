"""Changes in the driver's memory: for tests, notebooks and first looks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tether.spark.changes.columns import AFTER, CHANGE_TYPE, INSERT
from tether.spark.changes.views import View, check_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tether.spark.changes.columns import Mark


class MemoryChanges:
    """See :func:`to_memory`."""

    takes_tentative = True

    def __init__(self, key: list[str]) -> None:
        self.key = key
        self._lock = threading.Lock()
        self._given: dict[tuple[int, str], list[dict[str, Any]]] = {}
        self._replaced: set[int] = set()

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Not used: a sink that takes tentative rows is given each row with its mark."""
        raise NotImplementedError("changes come by write_changes, with their mark")

    def write_changes(self, rows: DataFrame, epoch: int, mark: Mark) -> None:
        """Keep the rows; an epoch that is run again replaces its earlier rows."""
        got = [row.asDict(recursive=True) for row in rows.collect()]
        with self._lock:
            if mark.kind == "tentative" and (epoch, "stable") in self._given:
                return  # it had its stable rows when another output's slots were found lost
            self._given.pop((epoch, mark.kind), None)  # to its place in the order
            self._given[epoch, mark.kind] = got
            self._replaced.update(mark.replaces)

    def take_back(self, epoch: int) -> None:
        """Forget this epoch and all after it: they will be given again."""
        with self._lock:
            for place in [place for place in self._given if place[0] >= epoch]:
                del self._given[place]

    def rows(self, view: View = "newest") -> list[dict[str, Any]]:
        """The rows, as dicts, with the columns that say what they are.

        Args:
            view: "stable", "newest" or "history"; see ``tether.read_changes``.
        """
        check_view(view)
        with self._lock:
            given = {place: list(rows) for place, rows in self._given.items()}
        if view == "history":
            return [row for rows in given.values() for row in rows]
        final = {epoch for epoch, kind in given if kind == "stable"} | self._replaced
        return [
            row
            for (epoch, kind), rows in sorted(given.items())
            if kind == "stable" or (view == "newest" and epoch not in final)
            for row in rows
            if row[CHANGE_TYPE] in (INSERT, AFTER)
        ]


def to_memory(*, key: str | list[str] | tuple[str, ...] = ()) -> MemoryChanges:
    """A sink that keeps all changes in the driver's memory; ``sink.rows(view)`` gives them.

    Args:
        key: Columns that say which row a correction replaces.

    Example:
        >>> to_memory().rows()
        []
    """
    return MemoryChanges([key] if isinstance(key, str) else list(key))
