"""The backup stores of a query: one for each lane, locked together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.chaos.faults import DRIVER_STORE_POINTS
from tether.chaos.store_faults import with_trouble
from tether.engine.query.binding import check_program
from tether.spark.graph.split import operators_of, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.backup.opening import StoreAddress
    from tether.backup.protocol import BackupStore, HeldLock
    from tether.spark.graph.prepared import PreparedQuery

BEHIND = "behind"
"""Folder of the lane behind a feedback loop, whose epochs are counted separately."""


class OpenStore(NamedTuple):
    """A store that this query holds."""

    address: StoreAddress
    store: BackupStore
    lock: HeldLock


def open_stores(query: PreparedQuery, owner: str) -> list[OpenStore | None]:
    """Lock the store of each lane, and check that it holds this program's state."""
    lanes = operators_of(split(query))
    if query.store_address is None:
        return [None for _ in lanes]
    opened: list[OpenStore | None] = []
    try:
        for number, nodes in enumerate(lanes):
            address = query.store_address
            if number:
                address = msgspec.structs.replace(address, url=f"{address.url}/{BEHIND}")
            store = address.open()
            store = with_trouble(store, query.faults, address.url, points=DRIVER_STORE_POINTS)
            opened.append(OpenStore(address, store, store.lock(owner)))
            check_program(store, [query.operators[node] for node in nodes], query.allow_changed)
    except BaseException:
        release(opened)
        raise
    return opened


def release(stores: Sequence[OpenStore | None]) -> None:
    """Release the stores for other queries."""
    for opened in stores:
        if opened is not None:
            opened.lock.release()
