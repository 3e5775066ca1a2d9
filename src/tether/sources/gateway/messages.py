"""What goes over the wire beside the rows.

What producers say and hear is JSON, so that any language can speak it; readers speak msgpack.
"""

from __future__ import annotations

import msgspec

from tether.protocols.lost_items import LostItems  # noqa: TC001 - msgspec reads it at run time
from tether.sources.gateway.records import Boundary, Reader  # noqa: TC001


class Hello(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a producer begins a ``DoPut``: the descriptor's command."""

    stream: str
    producer: str = ""
    """Its id; without one it gets a name for this connection, and nothing can be sent again."""
    life: str = ""
    """Names the memory of one process: the same after a broken connection, another after a restart."""
    replays: bool = False
    """Whether it reads again, from where it keeps them, all items after ``Welcome.heard``."""
    max_unacked: float | None = None
    """γ that it would like to keep to; None: as many as the gateway allows. JSON has no infinity."""


class Welcome(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The gateway's first answer."""

    producer: str
    heard: int
    """The newest of the producer's own numbers that must not be sent again."""
    max_unacked: float | None = None
    """γ: most items that the producer may have unacknowledged; None: any."""
    owner: str = ""
    """Set: another process of the gateway has this producer's numbers; connect there."""


class PutNote(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a producer says with each batch: the batch's ``app_metadata``."""

    offset_id: int
    """Its own number of the batch's first row, from 1; of a boundary, the number that it takes up."""
    boundary: float | None = None
    """Nothing older than this event time, in seconds, will come. The batch is empty."""
    waits: bool = False
    """The producer waits for the acknowledgement: it is not held for others."""
    heartbeat: bool = False
    """The producer is there. The batch is empty, and takes up no number."""
    closing: bool = False
    """The producer ends in good order; nothing is lost when it goes. The batch is empty."""


class Ack(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The gateway has all items up to a number of the producer's."""

    ack_up_to_offset: int
    rows: int = 0
    """Rows taken in."""
    duplicates: int = 0
    """Rows left out, for they had come before."""


class ReadTicket(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a reader asks for: rows with numbers from ``first`` to ``last``, both included."""

    stream: str
    first: int
    last: int
    columns: tuple[str, ...] = ()
    """Which ones; none: all."""


class CommitNote(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A reader will not ask again for items up to a number."""

    stream: str
    reader: str
    upto: int = 0
    max_lost: float | None = None
    """L that the reader allows, if it has changed; infinite: it sets no limit."""
    max_unacked: float | None = None
    """Γ that it allows, if it has changed."""


class StreamStatus(msgspec.Struct, kw_only=True):
    """All that a gateway tells of a stream."""

    store: str
    """Id of the store that its numbers belong to."""
    stream: str
    received: int
    shown: int
    committed: int
    backed_up: int
    at_risk: int
    limit: float
    """l now; infinite: no limit."""
    failures: int
    losses: list[LostItems]
    gone: float
    """Most items that producers may have lost unacknowledged."""
    readers: dict[str, Reader]
    producers: int
    boundaries: list[Boundary]
    schema: str
    """Arrow schema, IPC, in hexadecimal digits."""


def finite(number: float | None) -> float | None:
    """A number as JSON can say it."""
    return None if number is None or number == float("inf") else number


def infinite(number: float | None) -> float:
    """The other way round."""
    return float("inf") if number is None else number
