"""Boundaries of an exchange whose rows come from gateways: what their producers have said.

A producer says that nothing older than a time will come (``Producer.boundary``). That has a number among
the stream's items; an epoch that has read that far has all rows from before it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import fsspec

from tether.core.checks import count
from tether.sources.gateway.calls import PASSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.sources.gateway.records import Boundary
    from tether.sources.gateway.spark_source import SourceOptions


class GatewayBoundaries:
    """What producers have said up to the end of an epoch.

    Args:
        options: The stream of gateways that is read.
        checkpoint: Spark's checkpoint directory of the query that reads it.
        producers: How many there are: nothing is known before each of them has said something.
    """

    def __init__(self, options: SourceOptions, checkpoint: str, producers: int) -> None:
        self._options, self._checkpoint = options, checkpoint
        self._producers = count("producers", producers, unit="producers")

    def before(self, epoch: int) -> int | None:
        """Microseconds before which nothing will come after an epoch; None where that is not known."""
        read = self._read_through(epoch)
        said: list[Boundary] = []
        for address in self._options.gateways:
            calls = self._options.calls(address)
            try:
                status = calls.look(self._options.stream)
            except PASSING:
                return None  # it is away, and its producers with it
            finally:
                calls.close()
            if status.store in read:
                said += [one for one in status.boundaries if one.number <= read[status.store]]
        return earliest(said, self._producers)

    def _read_through(self, epoch: int) -> dict[str, int]:
        """Of each gateway's store the last number that the epoch has read."""
        fs, root = fsspec.core.url_to_fs(self._checkpoint)
        lines = fs.cat_file(f"{root}/offsets/{epoch}").decode().splitlines()[2:]
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return {str(store): int(number) for one in found for store, number in one.items()}


def earliest(said: Sequence[Boundary], producers: int) -> int | None:
    """The boundary that follows from those of a number of producers: the earliest of their newest times.

    Example:
        >>> from tether.sources.gateway.records import Boundary
        >>> said = [Boundary(5, "a", 10.0), Boundary(9, "a", 12.5), Boundary(7, "b", 11.0)]
        >>> earliest(said, 2), earliest(said, 3)
        (11000000, None)
    """
    newest: dict[str, float] = {}
    for one in said:
        newest[one.producer] = max(one.time, newest.get(one.producer, one.time))
    return int(min(newest.values()) * 1_000_000) if len(newest) >= producers else None
