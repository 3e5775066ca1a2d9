"""The data source that Spark calls. It decides between epochs, and its decision is the offset."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tether.sources.sunion.columns import KINDS, PLACES
from tether.sources.sunion.looking import Inputs, Spec
from tether.sources.sunion.offsets import decode, encode
from tether.sources.sunion.reading import Piece, pieces, read_piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from tether.sources.sunion.offsets import Offset

FORMAT = "tether-subscription"
SPEC = "spec"


class SUnionSource(DataSource):  # type: ignore[misc]
    """Several exchanges as one stream; ``tether.subscribe`` is the door."""

    @classmethod
    def name(cls) -> str:
        """What ``spark.readStream.format`` calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """The rows of the exchanges, and the columns that were asked for."""
        return row_schema(_spec(self.options))

    def streamReader(self, schema: StructType) -> SUnionReader:  # noqa: N802 - Spark's name
        """The reader of one query."""
        return SUnionReader(_spec(self.options), schema)


class SUnionReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One query's reader.

    Spark makes one that lives as long as the query, and decides; and copies in tasks, which read.
    """

    def __init__(self, spec: Spec, schema: StructType) -> None:
        self._spec, self._schema = spec, schema
        self._inputs: Inputs | None = None
        self._low: deque[tuple[tuple[int, ...], ...]] = deque(maxlen=max(1, spec.retain))
        self._stop_wanted = False

    def _opened(self) -> Inputs:
        if self._inputs is None:
            self._inputs = Inputs(self._spec)
        return self._inputs

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Before everything that is there."""
        return encode(self._opened().begin())

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: N802, ARG002
        """The end of the next epoch; the start itself where there is nothing to give yet."""
        before = decode(start)
        inputs = self._opened()
        if self._stop_wanted:
            self._stop_wanted = False
            inputs.stop_here(before)
        after = inputs.next(before, time.time())
        return start if after is before else encode(after)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """This query gives only what exists when the first epoch is cut."""
        self._stop_wanted = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of an epoch."""
        if start == end:
            return []
        offset: Offset = decode(end)
        inputs = self._opened()
        entries = [inputs.entries(number, taken) for number, taken in enumerate(offset.taken)]
        return [
            InputPartition(msgspec.json.encode(piece))
            for piece in pieces(self._spec, offset, entries)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        piece = msgspec.json.decode(partition.value, type=Piece)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return read_piece(self._spec, piece, schema)

    def stop(self) -> None:
        """The query ends."""
        if self._inputs is not None:
            self._inputs.stop()

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with what is before; the exchanges keep as much as a query may go back."""
        self._low.append(decode(end).low)
        if len(self._low) == self._low.maxlen:
            self._opened().note(self._low[0])


def row_schema(spec: Spec) -> StructType:
    """The columns of a subscription."""
    schema = msgspec.json.decode(spec.row_schema)
    ours = (KINDS if spec.kinds else {}) | (PLACES if spec.places else {})
    # From JSON: Spark runs this where there is no session that could parse a schema.
    schema["fields"] += [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in ours.items()
    ]
    return StructType.fromJson(schema)


def _spec(options: dict[str, str]) -> Spec:
    return msgspec.json.decode(options[SPEC], type=Spec)
