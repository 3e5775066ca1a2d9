"""Feedback items on their way from a downstream slot to an upstream one, through the driver.

They are sent inside the sender's status and the receivers' control, so they need no Spark job. They are
few and small: a model, a threshold, a sketch; not rows.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def pack_items(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Batches of one schema as an Arrow stream; empty where there are none.

    Example:
        >>> batch = pa.RecordBatch.from_pydict({"w": [1.0, 2.0]})
        >>> [items.num_rows for items in unpack_items(pack_items([batch, batch]))]
        [4]
    """
    batches = list(batches)
    if not batches:
        return b""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def unpack_items(packed: bytes) -> Iterator[pa.RecordBatch]:
    """All items of an epoch as one batch; empty where there are none."""
    if packed:
        table = pa.ipc.open_stream(packed).read_all().combine_chunks()
        yield from table.to_batches()


def merge_items(packed: Iterable[bytes]) -> bytes:
    """The items of several slots in one epoch, as one stream."""
    return pack_items(batch for one in packed for batch in unpack_items(one))
