"""One of several replicas of a query: what is its own, and what it shares with the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.core.checks import amount
from tether.sources.exchange.lease import SECONDS, LeaseAddress
from tether.sources.exchange.readers import check_reader
from tether.sources.exchange.sink import to_exchange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.policies.available import Available


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One of several drivers that run the same program over the same inputs (DPC 2005, §3).

    Each writes an exchange of its own, ``FOLDER/NAME/exchange``. A reader of the query's results
    names all of them as one input of ``tether.subscribe``, follows a stable one, and goes over to
    another when that stops or turns tentative. When an input of the query was missing and is back, the
    replicas correct their answers one after the other, so that one always answers.

    Guarantee: a reader of all exchanges has each stable row once, in the one order there is, as long
    as one replica is left.

    Args:
        name: Its name; another one for each replica, the same whenever it is restarted.
        folder: Directory or URL that all replicas of the query share.
        options: For the file system of the URL.
        lease_seconds: Seconds after which others go on with their corrections when the one whose turn
            it is has died.

    Example:
        >>> Replica(name="a", folder="/data/totals").exchange
        '/data/totals/a/exchange'
    """

    name: str
    folder: str
    options: Mapping[str, Any] = field(default_factory=dict)
    lease_seconds: float = SECONDS

    def __post_init__(self) -> None:
        check_reader(self.name)
        amount("lease_seconds", self.lease_seconds, unit="seconds", zero=None, infinite=None)
        place = self.folder if ":" in self.folder else str(Path(self.folder).absolute())
        object.__setattr__(self, "folder", place.rstrip("/"))

    @property
    def exchange(self) -> str:
        """Where its results are."""
        return f"{self.folder}/{self.name}/exchange"

    @property
    def checkpoint(self) -> str:
        """Spark's checkpoint directory."""
        return f"{self.folder}/{self.name}/checkpoint"

    @property
    def backup(self) -> str:
        """Where its state is backed up."""
        return f"{self.folder}/{self.name}/backup"

    @property
    def lease(self) -> LeaseAddress:
        """Where the replicas agree who corrects its answers first."""
        return LeaseAddress(
            url=self.folder,
            holder=self.name,
            seconds=self.lease_seconds,
            options=dict(self.options),
        )

    def start(
        self,
        stream: Any,
        *,
        tolerance: Available,
        time: str,
        disorder: float = 0.0,
        **options: Any,
    ) -> Any:
        """Start the query, or start it again, with all that is its own.

        Args:
            stream: The query, over ``tether.subscribe(..., tolerance=tolerance, replica=self)``.
            tolerance: The policy.
            time: Column of the results with their tuple time, as for ``tether.to_exchange``.
            disorder: How much older than the rows that they are made from results may be.
            options: Others of ``start``.

        Returns:
            The query's handle.
        """
        sink = to_exchange(
            self.exchange, time=time, disorder=disorder, replicated=True, options=self.options
        )
        return stream.start(
            sink,
            tolerance=tolerance,
            backup=self.backup,
            backup_options=self.options,
            checkpoint=self.checkpoint,
            **options,
        )
