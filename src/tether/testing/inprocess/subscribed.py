"""The shipped SUnion on the stand-in for Spark, at a time of one's own choosing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql.pandas.types import to_arrow_schema

from tether.sources.sunion.looking import Inputs
from tether.sources.sunion.offsets import decode, encode
from tether.sources.sunion.reading import pieces, read_piece
from tether.sources.sunion.source import row_schema
from tether.testing.inprocess.frames import Given
from tether.testing.inprocess.streams import EpochSource

if TYPE_CHECKING:
    from tether.sources.sunion.looking import Spec
    from tether.testing.inprocess.frames import LocalFrame
    from tether.testing.inprocess.session import LocalSession


class SubscribedSource(EpochSource):
    """What ``tether.subscribe`` gives, without Spark.

    Args:
        session: The session.
        spec: The subscription.
    """

    def __init__(self, session: LocalSession, spec: Spec) -> None:
        self.tether_subscription = spec
        self._arrow = to_arrow_schema(row_schema(spec), timezone="UTC")
        super().__init__(session, [], self._arrow)
        self._inputs = Inputs(spec)
        self.now = 0.0
        """Seconds, on the clock by which rows wait."""

    def cut(self, epoch: int, before: str | None) -> str | None:
        """The end of the next epoch, by the consistency manager."""
        del epoch
        start = self._inputs.begin() if before is None else decode(json.loads(before))
        after = self._inputs.next(start, self.now)
        return None if after is start else json.dumps(encode(after))

    def rows_of(self, before: str | None, end: str) -> LocalFrame:
        """What the offset names, in the order of SUnion."""
        del before
        offset, spec = decode(json.loads(end)), self.tether_subscription
        entries = [self._inputs.entries(number, taken) for number, taken in enumerate(offset.taken)]
        batches = [
            batch
            for piece in pieces(msgspec.structs.replace(spec, partitions=1), offset, entries)
            for batch in read_piece(spec, piece, self._arrow)
        ]
        return Given(self.sparkSession, self.schema, [batches])
