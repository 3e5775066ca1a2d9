"""The decision that cuts an epoch, as it stands in Spark's offset log.

Which rows an epoch has follows from its end offset alone: a retry, a restart and a second run of the
query read exactly the same.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import fsspec
import msgspec

from tether.core.errors import QueryRefusedError
from tether.protocols.consistency import START, Kind, Manager

NAME = "tether-subscription"


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of one input that an epoch looks at."""

    replica: int
    first: int
    end: int


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a subscription, and the content of the epoch that ends here."""

    manager: Manager
    low: tuple[tuple[int, ...], ...]
    """For each input and replica the first entry that later epochs may need."""
    kind: Kind = "stable"
    first: int = START
    """First bucket of this epoch."""
    end: int = START
    """First bucket after this epoch."""
    bucket: int = 1
    """Size of a bucket, in units of tuple time."""
    taken: tuple[Taken, ...] = ()
    given: int = 0
    """How many stable epochs there have been, this one included."""
    clocks: dict[str, float] = {}
    """Exchanges whose writers' clocks are ahead of this reader's: by how many seconds at least."""
    source: str = NAME

    @property
    def stable_before(self) -> int:
        """All rows below this tuple time have been given as stable."""
        return self.manager.stable * self.bucket


def encode(offset: Offset) -> dict[str, Any]:
    """An offset as Spark keeps it: numbers and words in dictionaries, lists as JSON within."""
    # Spark's own reading of a Python source's offsets knows no lists.
    return {"source": NAME, "end": msgspec.json.encode(offset).decode()}


def decode(kept: dict[str, Any]) -> Offset:
    """The way back."""
    return msgspec.json.decode(kept["end"], type=Offset)


class Told(NamedTuple):
    """What an exchange's writer must know of an epoch of a subscription."""

    kind: Kind
    boundary: int
    """Tuple time below which no later row of that kind will be."""
    failing: bool
    """Whether inputs are missing, and nothing can be corrected now."""


def told_by(checkpoint: str, epoch: int) -> Told:
    """Kind and boundary of an epoch of a query whose rows come from one subscription.

    Args:
        checkpoint: Spark's checkpoint directory of that query.
        epoch: The epoch.

    Raises:
        QueryRefusedError: it has no subscription, or several.
    """
    found = end_of(checkpoint, epoch)
    return Told(found.kind, found.end * found.bucket, found.manager.phase == "up-failure")


def end_of(checkpoint: str, epoch: int) -> Offset:
    """What an epoch of a query whose rows come from one subscription consists of.

    Args:
        checkpoint: Spark's checkpoint directory of that query.
        epoch: The epoch.

    Raises:
        QueryRefusedError: it has no subscription, or several.
    """
    fs, root = fsspec.core.url_to_fs(checkpoint)
    try:
        lines = fs.cat_file(f"{root}/offsets/{epoch}").decode().splitlines()[2:]
    except FileNotFoundError:
        lines = []
    found = [decode(json.loads(line)) for line in lines if line.startswith("{") and NAME in line]
    if len(found) != 1:
        raise QueryRefusedError(
            f"Epoch {epoch} of the query at {checkpoint} has {len(found)} subscriptions.",
            why="Kinds and boundaries of an exchange are taken over from the one that its rows were "
            "made from.",
            do="Name the checkpoint directory of the query that writes the exchange; its only source "
            "must be tether.subscribe.",
        )
    return found[0]
