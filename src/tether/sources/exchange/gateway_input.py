"""A gateway as an input of ``tether.subscribe``, without a query in between.

Rows stay at the gateway. What an exchange's entries would say of them is in an *index*, a small exchange
of its own whose files are ranges of the gateway's numbers: the subscription's driver extends it
(``gateway_index``), and tasks fetch the rows (``gateway_rows``).
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tether.backup.sealed import seal, unseal
from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.sources.exchange.log import About
from tether.sources.gateway.calls import PASSING, GatewayCalls
from tether.sources.gateway.errors import UnreachableError
from tether.sources.gateway.messages import CommitNote

if TYPE_CHECKING:
    from tether.sources.exchange.log import ExchangeLog
    from tether.sources.gateway.messages import StreamStatus

_IDENTITY = "gateway.json"


class GatewayInput(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway's stream as one of the inputs of ``tether.subscribe``.

    Boundaries are what its producers say (``Producer.boundary``). A row that is older than what all of
    them have said keeps its columns, and gets the oldest tuple time that is still allowed; so does a row
    whose time is null.

    Guarantee: every row that the gateway has acknowledged is given, and the same rows again whenever an
    epoch is run again: from the first ``subscribe`` on, the gateway makes every row durable before it
    acknowledges it, and keeps it until this reader is done with it. (What it had acknowledged before
    may be lost in a crash as far as it was allowed to lose it then.)

    A gateway that stops answering counts as silent. What was seen of it before must still be fetched
    there: an epoch with such rows waits for the gateway ``wait_seconds``. Where it may be away for
    longer than X, put it behind an exchange with ``tether.ingest``.

    Args:
        gateway: Its address, ``host:port``.
        stream: Name of the stream.
        time: Column with the tuple time: a timestamp, or a whole number of seconds.
        index: Directory or URL for what is known of the rows; for this stream, and kept with the query's
            checkpoint. Several subscriptions may share it.
        producers: How many producers there are: no bucket is complete before each of them has said
            something.
        token: What the gateway asks for, if it does.
        root_certificate: Path of a PEM file, for TLS.
        wait_seconds: How long a task waits for a gateway that is away.

    Example:
        >>> clicks = GatewayInput(
        ...     gateway="localhost:7070", stream="clicks", time="at", index="/data/totals/clicks"
        ... )
        >>> clicks.producers
        1
    """

    gateway: str
    stream: str
    time: str
    index: str
    producers: int = 1
    token: str | None = None
    root_certificate: str | None = None
    wait_seconds: float = 120.0

    def __post_init__(self) -> None:
        count("producers", self.producers, unit="producers")
        amount("wait_seconds", self.wait_seconds, unit="seconds", zero="none", infinite=None)

    def __repr__(self) -> str:
        return f"GatewayInput(gateway={self.gateway!r}, stream={self.stream!r})"  # not the token

    def calls(self, address: str, seconds: float = 10.0) -> GatewayCalls:
        """Questions to one process of the gateway."""
        root = Path(self.root_certificate).read_bytes() if self.root_certificate else None
        return GatewayCalls(address, self.token, root, seconds)

    def prepare(self, log: ExchangeLog) -> About:
        """Make the index, or make sure that it is that of this stream.

        Raises:
            BadValueError: the column cannot be a tuple time, or the index is that of something else.
            UnreachableError: there is no index yet, and the gateway is away.
        """
        found = log.about()
        if found is None:
            found = About(row_schema=self._row_schema(), unit="microseconds")
            self._register(self.reader(log))
            log.create(found)
        else:
            self.reader(log)
        return found

    def reader(self, log: ExchangeLog) -> str:
        """The name under which the gateway keeps rows for whoever reads this index."""
        mine = _Identity(
            stream=self.stream,
            time=self.time,
            producers=self.producers,
            reader=f"subscription-{uuid.uuid4().hex[:12]}",
        )
        try:
            log.folder.create(_IDENTITY, seal(mine))
        except FileExistsError:
            there = msgspec.convert(unseal(log.folder.read(_IDENTITY)), _Identity)
            if msgspec.structs.replace(there, reader=mine.reader) != mine:
                raise BadValueError(
                    f"The index {log.url} is that of another input.",
                    why=f"It is of the stream {there.stream!r}, by the column {there.time!r} of "
                    f"{there.producers} producers.",
                    do="Give each stream an index of its own.",
                ) from None
            return there.reader
        return mine.reader

    def _register(self, reader: str) -> None:
        """From here on the gateway keeps rows for this reader, and loses none."""
        front = self.calls(self.gateway)
        try:
            addresses = front.parts()
        finally:
            front.close()
        note = CommitNote(stream=self.stream, reader=reader, max_lost=0.0)
        for address in addresses:
            calls = self.calls(address)
            try:
                calls.commit(note)
            finally:
                calls.close()

    def _row_schema(self) -> str:
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - loads PySpark

        calls = self.calls(self.gateway)
        try:
            status: StreamStatus = calls.look(self.stream)
        except PASSING as error:
            raise UnreachableError(
                f"The gateway at {self.gateway} cannot be asked for the columns of {self.stream!r}.",
                why=str(error),
                do="Start it; later on, the subscription can start without it.",
            ) from error
        finally:
            calls.close()
        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(status.schema)))
        kind = schema.field(self.time).type if self.time in schema.names else None
        if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
            raise BadValueError(
                f"The column {self.time!r} of the stream {self.stream!r} cannot be a tuple time.",
                why="There is none." if kind is None else f"It is of type {kind}.",
                do="Name a column with a timestamp, or with a whole number of seconds.",
            )
        return from_arrow_schema(schema).json()  # type: ignore[no-any-return]


class _Identity(msgspec.Struct, frozen=True, kw_only=True):
    stream: str
    time: str
    producers: int
    reader: str
