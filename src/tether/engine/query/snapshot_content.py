"""What a snapshot holds beside the states of slots: feedback in flight, and the stream's clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tether.engine.messages import StreamClock
from tether.engine.query.commit_entries import clock_name, keeps_clock
from tether.engine.query.feedback_box import items_of
from tether.engine.writing.items import unpack_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.backup.history import CompleteSnapshot
    from tether.backup.protocol import BackupStore
    from tether.engine.query.feedback_box import FeedbackBox
    from tether.spark.graph.prepared import PreparedOperator


def content(
    feedback: FeedbackBox,
    clocks: Mapping[str, StreamClock],
    operators: Iterable[PreparedOperator],
) -> dict[str, list[pa.RecordBatch]]:
    """All of it as of now, by the name under which it is stored.

    In epochs, the items in flight at a barrier are those that wait for the next epoch (ABS 2015 §4.3).
    """
    held: dict[str, list[pa.RecordBatch]] = {}
    for operator in operators:
        waiting = feedback.waiting(operator.name)
        if waiting is not None and waiting.items:
            held[operator.name] = list(unpack_items(waiting.items))
        if keeps_clock(operator):
            clock = msgspec.to_builtins(clocks[operator.name])
            held[clock_name(operator)] = [pa.RecordBatch.from_pylist([clock], _CLOCK)]
    return held


_CLOCK = pa.schema([(name, pa.float64()) for name in StreamClock.__struct_fields__])


def clocks_in(
    store: BackupStore, snapshot: CompleteSnapshot, operators: Iterable[PreparedOperator]
) -> dict[str, StreamClock]:
    """The clocks that a snapshot holds, by operator."""
    found = {}
    for operator in operators:
        for batch in items_of(store, snapshot, clock_name(operator)):
            found[operator.name] = msgspec.convert(batch.to_pylist()[0], StreamClock)
    return found
