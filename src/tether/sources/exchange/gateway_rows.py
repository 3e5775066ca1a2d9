"""Rows that are at a gateway, for the tasks of a subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tether.core.errors import BackupUnreadableError
from tether.sources.exchange.entries import DataFile
from tether.sources.exchange.log import TUPLE_TIME
from tether.sources.gateway.calls import patiently
from tether.sources.gateway.errors import UnreachableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tether.sources.exchange.gateway_input import GatewayInput
    from tether.sources.exchange.view import Wanted


class ItemRange(NamedTuple):
    """Items of a gateway, as an entry of an index names them.

    Example:
        >>> ItemRange.parse(ItemRange("ab12", 1, 9, None).name)
        ItemRange(store='ab12', first=1, last=9, floor=None)
    """

    store: str
    """Id of the gateway's store, whose numbers these are."""
    first: int
    last: int
    floor: int | None
    """The boundary that was told before: older rows get it as their tuple time."""

    @property
    def name(self) -> str:
        """In place of a file's name."""
        floor = "" if self.floor is None else self.floor
        return f"items/{self.store}/{self.first}/{self.last}/{floor}"

    @classmethod
    def parse(cls, name: str) -> ItemRange:
        """The way back."""
        _, store, first, last, floor = name.split("/")
        return cls(store, int(first), int(last), int(floor) if floor else None)


def tuple_times(column: pa.ChunkedArray, floor: int | None) -> NDArray[np.int64]:
    """Microseconds since 1970, none below a boundary.

    Example:
        >>> tuple_times(pa.chunked_array([[3, None, 1]]), 2_000_000).tolist()
        [3000000, 2000000, 2000000]
    """
    if pa.types.is_timestamp(column.type):
        whole = pa.timestamp("us", column.type.tz)
        micros = pc.cast(pc.cast(column, whole, safe=False), pa.int64())
    else:
        micros = pc.multiply(pc.cast(column, pa.int64()), 1_000_000)
    times: NDArray[np.int64] = pc.fill_null(micros, 0 if floor is None else floor).to_numpy()
    return times if floor is None else np.maximum(times, floor)


def described(items: ItemRange, column: pa.ChunkedArray) -> DataFile:
    """What an index says of items, from the column with their time."""
    times = tuple_times(column, items.floor)
    return DataFile(
        name=items.name,
        rows=len(times),
        size=0,
        checksum=_checksum(times),
        low=int(times.min()),
        high=int(times.max()),
    )


def read_items(
    source: GatewayInput, wanted: Wanted, columns: list[str]
) -> tuple[pa.Table, NDArray[np.int64]]:
    """The wanted rows, in order of their tuple time, and their numbers within the epoch.

    Raises:
        BackupUnreadableError: they are not those that were seen first.
        UnreachableError: the gateway was away for too long.
    """
    items = ItemRange.parse(wanted.file.name)
    rows = patiently(lambda: _fetch(source, items), source.wait_seconds)
    times = tuple_times(rows[source.time], items.floor)
    if len(times) != wanted.file.rows or _checksum(times) != wanted.file.checksum:
        raise BackupUnreadableError(
            f"Items {items.first} to {items.last} of {source!r} are not those that were seen first.",
            why=f"They were {wanted.file.rows} and are {len(times)}, or have other times: the gateway "
            "lost some of them, or another copy of its store was put in place.",
            do="Put the right store back, or begin the query again with an empty checkpoint and index.",
        )
    inside = np.flatnonzero((times >= wanted.first) & (times < wanted.end))
    order = inside[np.argsort(times[inside], kind="stable")]
    found = rows.select(columns).take(pa.array(order))
    return found.append_column(TUPLE_TIME, pa.array(times[order])), wanted.row + order


def _fetch(source: GatewayInput, items: ItemRange) -> pa.Table:
    front = source.calls(source.gateway)
    try:
        addresses = front.parts()
    finally:
        front.close()
    for address in addresses:
        calls = source.calls(address)
        try:
            if len(addresses) == 1 or calls.look(source.stream).store == items.store:
                return calls.read(source.stream, items.first, items.last)
        finally:
            calls.close()
    raise UnreachableError(
        f"No process of {source!r} has the store {items.store}.",
        why="The query has seen items of it before.",
        do="Start the gateway on that store.",
    )


def _checksum(times: NDArray[np.int64]) -> int:
    return crc32(np.ascontiguousarray(times, "<i8").data)
