"""Stateful processors of every kind of state: value, list, map, with timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator


class Remembering(StatefulProcessor):
    """A sum (value), the newest amounts (list), amounts by their last digit (map), and a timer."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "total long")
        self.recent = handle.getListState("recent", "v long")
        self.digits = handle.getMapState("digits", "digit long", "n long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[Any]:
        (total,) = self.total.get() if self.total.exists() else (0,)
        for frame in rows:
            for v in frame.v:
                total += int(v)
                self.recent.appendValue((int(v),))
                digit = (int(v) % 3,)
                seen = self.digits.getValue(digit)[0] if self.digits.containsKey(digit) else 0
                self.digits.updateValue(digit, (seen + 1,))
        kept = [row[0] for row in self.recent.get()][-4:]
        self.recent.put([(v,) for v in kept])
        self.total.update((total,))
        if timerValues.getCurrentWatermarkInMs() > 0:
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 4000)
        shown = [("total", total), ("recent", sum(kept))]
        shown += [(f"digit {k[0]}", v[0]) for k, v in self.digits.iterator()]
        yield pd.DataFrame(
            {
                "k": [key[0]] * len(shown),
                "what": [a for a, _ in shown],
                "amount": [b for _, b in shown],
            }
        )

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        if self.digits.exists():
            self.digits.clear()
        yield pd.DataFrame(
            {
                "k": [key[0]],
                "what": ["expired"],
                "amount": [expiredTimerInfo.getExpiryTimeInMs() % 1000_000],
            }
        )

    def close(self) -> None:
        pass


class Forgetting(StatefulProcessor):
    """A sum that is kept for an hour; a list and a map that the next batch finds empty."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "total long", ttlDurationMs=3_600_000)
        self.recent = handle.getListState("recent", "v long", ttlDurationMs=1)
        self.digits = handle.getMapState("digits", "digit long", "n long", ttlDurationMs=1)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[Any]:
        (total,) = self.total.get() if self.total.exists() else (0,)
        for frame in rows:
            for v in frame.v:
                total += int(v)
                self.recent.appendValue((int(v),))
                self.digits.updateValue((int(v) % 3,), (total,))
        self.total.update((total,))
        kept = sum(row[0] for row in self.recent.get())
        known = sum(v[0] for _, v in self.digits.iterator())
        yield pd.DataFrame({"k": [key[0]], "total": [total], "kept": [kept], "known": [known]})

    def close(self) -> None:
        pass


class Counting(StatefulProcessor):
    """The same sum in the row form, forgotten when it is a multiple of 5."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (total,) = self.total.get() if self.total.exists() else (0,)
        total += sum(row.v for row in rows)
        if total % 5:
            self.total.update((total,))
        elif self.total.exists():
            self.total.clear()
        yield Row(k=key[0], total=total)

    def close(self) -> None:
        pass


class Evolving(StatefulProcessor):
    """Keeps a row as value, list and map, in the schema of today; gives what it found of yesterday."""

    def __init__(self, schema: str, row: tuple[Any, ...]) -> None:
        self.schema, self.row = schema, row

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", self.schema)
        self.list = handle.getListState("list", self.schema)
        self.map = handle.getMapState("map", "name string", self.schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        found = [self.value.get()] if self.value.exists() else []
        found += [*self.list.get()] if self.list.exists() else []
        found += [value for _, value in self.map.iterator()] if self.map.exists() else []
        self.value.update(self.row)
        self.list.put([self.row])
        self.map.updateValue(("one",), self.row)
        yield Row(k=key[0], found=repr([tuple(row) for row in found]))

    def close(self) -> None:
        pass
