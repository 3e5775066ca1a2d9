"""Rows and exchanges without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from tether.sources.exchange.files import write_files
from tether.sources.exchange.log import ROW_HASH, TUPLE_TIME, About, ExchangeAddress, ExchangeLog
from tether.sources.exchange.writer import ExchangeWriter, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

ROW_SCHEMA = '{"type":"struct","fields":[{"name":"v","type":"long","nullable":true,"metadata":{}}]}'
ABOUT = About(row_schema=ROW_SCHEMA, unit="integer")


def batch(times: Sequence[int | None], values: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "v": pa.array(values, pa.int64()),
            TUPLE_TIME: pa.array(times, pa.int64()),
            ROW_HASH: pa.array(np.array(values, np.int64) * 7919 % 101),
        }
    )


class Written:
    """An exchange under test."""

    def __init__(self, url: str, options: dict[str, Any] | None = None, **about: Any) -> None:
        self.address = ExchangeAddress(url=url, options=options or {})
        self.about = About(row_schema=ROW_SCHEMA, unit="integer", **about)
        self.now = 0.0
        self.log: ExchangeLog = self.address.open()
        self.log.create(self.about)
        self.writer = self.reopened()

    def reopened(self, query: str = "q") -> ExchangeWriter:
        self.writer = ExchangeWriter(self.address.open(), query, clock=lambda: self.now)
        return self.writer

    def add(
        self,
        epoch: int,
        rows: Sequence[tuple[int, int]],
        boundary: int | None = None,
        kind: Any = "stable",
        *,
        failing: bool = False,
    ) -> bool:
        kept = self.keep(epoch, rows, boundary)
        return self.writer.add(epoch, kind, msgspec.structs.replace(kept, failing=failing))

    def keep(self, epoch: int, rows: Sequence[tuple[int, int]], boundary: int | None) -> Rows:
        found = []
        if rows:
            times, values = zip(*rows, strict=True)
            found = list(
                write_files(
                    self.log.folder,
                    [batch(times, values)],
                    epoch=epoch,
                    task=0,
                    floor=self.writer.boundary,
                    keep_hash=self.about.replicated,
                )
            )
        return Rows(
            files=tuple(each.file for each in found),
            digest=sum(each.digest for each in found),
            late=sum(each.late for each in found),
            boundary=boundary,
        )
