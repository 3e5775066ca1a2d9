"""``spark.readStream.format("tether")``: a gateway as a streaming source.

Offsets are the gateway's numbers, by the id of its store. Nothing passes through the driver but these;
executors fetch the rows themselves, with ``DoGet``. A gateway that is away holds nothing up: its rows
come when it is back.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tether.core.errors import BadValueError
from tether.sources.folding.fold import Fold, folded, folded_schema
from tether.sources.gateway.calls import PASSING, GatewayCalls, patiently
from tether.sources.gateway.errors import GatewayError, UnreachableError
from tether.sources.gateway.messages import CommitNote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from tether.sources.gateway.messages import StreamStatus

FORMAT = "tether"
ROWS_PER_PARTITION = 100_000
"""An epoch with fewer rows is read by one task."""
ROWS_PER_BATCH = 65_536


class SourceOptions(NamedTuple):
    """Options of the source, as ``option(…)`` gives them.

    ``gateway``: one address, or several with commas between. ``stream``: its name. ``maxRowsPerEpoch``:
    most numbers that an epoch takes. ``partitions``: most tasks that read an epoch, by default as many
    as the driver's machine has cores. ``waitSeconds``: how long a task waits for a gateway that is away.
    ``token``, ``rootCertificate`` (a path): as the gateway asks for them. ``trim``: "spark", where the
    query is not Tether's: Spark's own commits then tell the gateway what is no longer needed, under the
    name ``reader``.
    """

    gateways: tuple[str, ...]
    stream: str
    max_rows: int | None
    partitions: int
    wait_seconds: float
    token: str | None
    root_certificate: bytes | None
    trim: bool
    reader: str
    fold: Fold | None

    @classmethod
    def parse(cls, options: Any) -> SourceOptions:
        """Options as Spark has them: texts under names of any case.

        Raises:
            BadValueError: One is missing or cannot be used.
        """
        given = {str(name).lower(): str(options[name]) for name in options}
        for name in ("gateway", "stream"):
            if not given.get(name):
                raise BadValueError(
                    f"The source tether needs the option {name!r}.",
                    do='Write .option("gateway", "host:port").option("stream", "name").',
                )
        root = given.get("rootcertificate")
        fold = given.get("fold")
        return cls(
            gateways=tuple(one.strip() for one in given["gateway"].split(",") if one.strip()),
            stream=given["stream"],
            max_rows=_whole(given, "maxrowsperepoch"),
            partitions=_whole(given, "partitions") or os.cpu_count() or 1,
            wait_seconds=float(given.get("waitseconds", "120")),
            token=given.get("token"),
            root_certificate=Path(root).read_bytes() if root else None,
            trim=given.get("trim", "") == "spark",
            reader=given.get("reader", "spark"),
            fold=msgspec.json.decode(fold, type=Fold) if fold else None,
        )

    def calls(self, address: str) -> GatewayCalls:
        """Questions to one of the gateways."""
        return GatewayCalls(address, self.token, self.root_certificate)


class RangePartition(InputPartition):  # type: ignore[misc]
    """Numbers that one task reads."""

    def __init__(self, address: str, first: int, last: int) -> None:
        super().__init__((address, first, last))
        self.address, self.first, self.last = address, first, last


class GatewayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """What Spark asks: on the driver where an epoch ends, on executors for its rows.

    Args:
        options: Of the source.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._known: dict[str, tuple[str, int]] = {}
        """For each address: the store there, and the number of its oldest item."""
        self._parts: dict[str, tuple[str, ...]] = {}
        """For each address that was given: the processes behind it."""
        self._target: dict[str, int] | None = None
        self._calls: dict[str, GatewayCalls] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_calls": {}}

    # ---- the driver's side -----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Before everything: the oldest item of every gateway."""
        return {}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The limit that the option ``maxRowsPerEpoch`` sets."""
        rows = self._options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        """The offset at which the next epoch ends."""
        newest = self._target if self._target is not None else self._newest(start)
        end, left = dict(start), getattr(limit, "max_rows", None)
        for store in sorted(newest):
            at = start.get(store, self._oldest(store))
            upto = max(at, newest[store])
            if left is not None:
                upto = min(upto, at + left)
                left -= upto - at
            if upto > start.get(store, -1) and (upto > at or store in start):
                end[store] = upto
        return end

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """For progress reports."""
        return None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what is there now: nothing later is read."""
        self._target = self._newest({})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The ranges of numbers that tasks read."""
        ranges: list[InputPartition] = []
        for store, upto in sorted(end.items()):
            address = self._address(store)
            after = start.get(store, self._oldest(store))
            count = upto - after
            if count <= 0:
                continue
            parts = max(1, min(self._options.partitions, count // ROWS_PER_PARTITION))
            cuts = [after + count * part // parts for part in range(parts + 1)]
            ranges += [RangePartition(address, low + 1, high) for low, high in pairwise(cuts)]
        return ranges

    def commit(self, end: dict[str, int]) -> None:
        """Spark needs nothing up to here any more. A Tether query tells the gateway itself."""
        if not self._options.trim:
            return
        for store, upto in end.items():
            note = CommitNote(stream=self._options.stream, reader=self._options.reader, upto=upto)
            try:
                self._at(self._address(store)).commit(note)
            except PASSING:
                continue  # the next commit says it again

    def stop(self) -> None:
        """Let go of the connections."""
        for calls in self._calls.values():
            calls.close()

    def _newest(self, start: dict[str, int]) -> dict[str, int]:
        newest: dict[str, int] = {}
        for address in self._addresses(begins=not start):
            first = address not in self._known and not start
            # A query begins with all its gateways; later it goes on without one that is away.
            seconds = self._options.wait_seconds if first else 0.0
            try:
                status = patiently(partial(self._at(address).status, self._options.stream), seconds)
            except UnreachableError:
                if first:
                    raise
                continue
            self._known[address] = (status.store, status.committed)
            newest[status.store] = status.shown
            _check_same(status, start, address)
        return newest

    def _addresses(self, *, begins: bool) -> list[str]:
        """Addresses of all processes of all gateways, as far as they have been reached."""
        for given in self._options.gateways:
            if given not in self._parts:
                seconds = self._options.wait_seconds if begins else 0.0
                try:
                    self._parts[given] = patiently(self._at(given).parts, seconds)
                except UnreachableError:
                    if begins:
                        raise
        return [one for parts in self._parts.values() for one in parts]

    def _oldest(self, store: str) -> int:
        return next((oldest for known, oldest in self._known.values() if known == store), 0)

    def _address(self, store: str) -> str:
        for address, (known, _) in self._known.items():
            if known == store:
                return address

        def look() -> str:
            self._newest({store: 0})
            for address, (known, _) in self._known.items():
                if known == store:
                    return address
            raise UnreachableError(
                f"No gateway of {', '.join(self._options.gateways)} has the store {store}.",
                why="The query has read from it before.",
                do="Start that gateway on its store, and name its address in the option gateway.",
            )

        return patiently(look, self._options.wait_seconds)

    def _at(self, address: str) -> GatewayCalls:
        if address not in self._calls:
            self._calls[address] = self._options.calls(address)
        return self._calls[address]

    # ---- the executors' side ---------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; folded, where that was asked for."""
        assert isinstance(partition, RangePartition)
        calls = self._options.calls(partition.address)
        try:
            rows = patiently(
                lambda: calls.read(self._options.stream, partition.first, partition.last),
                self._options.wait_seconds,
            )
        finally:
            calls.close()
        if self._options.fold is not None:
            rows = folded(rows, self._options.fold)
        yield from rows.combine_chunks().to_batches(max_chunksize=ROWS_PER_BATCH)


class GatewaySource(DataSource):  # type: ignore[misc]
    """The source under the name "tether"."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(…)``."""
        return FORMAT

    def schema(self) -> StructType:
        """Of the stream, or of its rows folded."""
        options = SourceOptions.parse(self.options)
        rows = stream_schema(options)
        return from_arrow_schema(
            rows if options.fold is None else folded_schema(rows, options.fold)
        )

    def streamReader(self, schema: StructType) -> GatewayReader:  # noqa: ARG002, N802 - Spark's names
        """The reader of a query."""
        # It asks the gateways nothing: they may be away while a query starts.
        return GatewayReader(SourceOptions.parse(self.options))


def stream_schema(options: SourceOptions) -> pa.Schema:
    """The schema that the gateways have for the stream; all must have the same."""
    found: dict[str, pa.Schema] = {}
    for address in options.gateways:
        status = options.calls(address).status(options.stream)
        found[address] = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(status.schema)))
    schemas = list(found.values())
    if any(not schema.equals(schemas[0]) for schema in schemas):
        raise BadValueError(
            f"The gateways have different schemas for the stream {options.stream!r}.",
            why="; ".join(f"{address}: {schema}" for address, schema in found.items()),
            do="Read them as two sources, and unite what they have in common.",
        )
    return schemas[0]


def register(session: Any) -> None:
    """Make ``format("tether")`` known to a session."""
    session.dataSource.register(GatewaySource)


def _check_same(status: StreamStatus, start: dict[str, int], address: str) -> None:
    if start.get(status.store, 0) > status.received:
        raise GatewayError(
            f"The gateway at {address} has forgotten items that the query has read.",
            why=f"Its newest item is {status.received}, and the query is at {start[status.store]}: an "
            "older copy of its store was put in place.",
            do="Put the right store back, or begin the query again with an empty checkpoint.",
        )


def _whole(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise BadValueError(
            f"The option {name}={text!r} is not a number of rows or tasks.",
            do="Give a whole number above 0.",
        )
    return int(text)
