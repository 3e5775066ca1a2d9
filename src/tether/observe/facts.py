"""The schema of the feed: what a query is, the figures of an epoch, the slots as they are.

JSON knows no infinity. An amount that is ``None`` has no limit: nothing is promised, or nobody knows
how much was lost.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from tether.core.ids import Epoch, Slot

# msgspec reads the annotations at run time.
from tether.observe.story import Event  # noqa: TC001

Door = Literal["operators", "sql"]
State = Literal["stable", "tentative", "healing"]
Action = Literal["snapshot", "heal", "drill"]
Ending = Literal["", "stopped", "failed"]


def finite(amount: float) -> float | None:
    """An amount as the feed holds it.

    Example:
        >>> finite(2.5), finite(math.inf)
        (2.5, None)
    """
    return None if math.isinf(amount) or math.isnan(amount) else float(amount)


class OperatorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a query."""

    name: str
    slots: int
    policy: str = ""


class QueryFacts(msgspec.Struct, frozen=True, kw_only=True, tag="query", tag_field="fact"):
    """What a query is; told once at the start of every run."""

    at: float
    """Unix seconds, when the run began."""
    id: str
    """The same after every restart."""
    run: str
    """Identifies this run of the query."""
    name: str
    door: Door
    policy: str
    """The policy in words, with its settings."""
    operators: tuple[OperatorFacts, ...]
    version: str = ""
    """Tether's."""


class EpochFigures(
    msgspec.Struct, frozen=True, kw_only=True, tag="epoch", tag_field="fact", omit_defaults=True
):
    """What one epoch did, and the bound at its end. Older epochs are joined into one entry.

    Amounts of error are in units of the state's divergence.
    """

    at: float
    """Unix seconds, at the end of the (last) epoch."""
    epoch: Epoch
    """Number of the (last) epoch."""
    epochs: int = 1
    """How many epochs this entry speaks of."""
    seconds: float = 0.0
    """How long they took, together."""
    rows_in: int = 0
    rows_out: int = 0
    promised: float | None = None
    """Θ; None: nothing is promised."""
    spent: float | None = 0.0
    """The most that the answer can be wrong by now; None: without a limit."""
    at_risk: float | None = 0.0
    """What would be added if every slot died now."""
    worst: float | None = 0.0
    """The most that the answer would then be wrong by."""
    left: float | None = 0.0
    """Θ less what was paid from it."""
    backups: dict[str, int] = {}
    """Backups by cause."""
    backup_bytes: dict[str, int] = {}
    """Their bytes by cause."""
    changed: int = 0
    """Entries of state that changed: what a policy that loses nothing would have written."""
    entry_bytes: float = 0.0
    """Bytes that an entry takes in a backup, on average so far; 0: none has been written yet."""
    resident_bytes: int = 0
    fullness: float = 0.0
    """Largest divergence of a slot as a share of its θ."""
    losses: int = 0
    """Losses of resident state in these epochs."""
    state: State = "stable"
    """Of the answer: see ``docs/guarantees.md`` for stable and tentative."""
    fidelity: float = 1.0
    """Share of the input that a tentative answer is made from."""
    behind: int = 0
    """Epochs that a healing twin has yet to catch up with."""
    seconds_left: float | None = None
    """Until it has, as far as can be told."""
    missing_since: float | None = None
    """Unix seconds, when something began to be missing from the answer; None: nothing is."""
    missing_from: int = -1
    """The epoch that it began with."""
    tentative_rows: int = 0
    """Tentative rows that were given and not corrected yet."""
    oldest_tentative: float | None = None
    """Unix seconds, when the oldest of them was given."""


class SlotsNow(msgspec.Struct, frozen=True, kw_only=True, tag="slots", tag_field="fact"):
    """Every slot at the end of an epoch, column by column; all columns have the same length."""

    at: float
    epoch: Epoch
    operator: list[int]
    """Place of the operator's name in ``QueryFacts.operators``."""
    slot: list[int]
    divergence: list[float | None]
    """By slot; None where it is not known, as in the parts of a barrier snapshot."""
    theta: list[float | None]
    executor: list[int]
    """Place of the executor's name in ``executors``."""
    backup_epoch: list[int]
    """Epoch of its newest backup; -1: none yet."""
    backup_at: list[float]
    failures: list[int]
    rows: list[int]
    """Rows of its newest epoch."""
    resident_bytes: list[int]
    executors: list[str]


class CopyNow(msgspec.Struct, frozen=True, kw_only=True):
    """One active replica of a slot."""

    operator: str
    slot: Slot
    executor: str
    lag: int
    """Epochs behind its primary."""
    speaks: bool = False


class GatewayNow(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway's windows."""

    name: str
    pending: int
    """Items that are in memory only."""
    max_pending: float | None
    """l: most that may be; None: no limit."""
    unacked: float | None
    """Most items that producers which are gone may have had unacknowledged; None: any number."""
    max_unacked: float | None
    """Γ: most that all of them together may; None: no limit."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, tag="standing", tag_field="fact"):
    """Copies and gateways as they are; told when they have changed."""

    at: float
    copies: tuple[CopyNow, ...] = ()
    gateways: tuple[GatewayNow, ...] = ()


class Told(msgspec.Struct, frozen=True, kw_only=True, tag="event", tag_field="fact"):
    """An event of the story."""

    event: Event


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", tag_field="fact"):
    """The last word of a run: how it ended, and why if it failed."""

    at: float
    how: Ending
    why: str = ""


class Digest(msgspec.Struct, frozen=True, kw_only=True, tag="digest", tag_field="fact"):
    """Sums of what the run told before; the head of a file whose elders may have been dropped."""

    at: float
    epochs: int
    rows_in: int
    rows_out: int
    backups: dict[str, int]
    backup_bytes: dict[str, int]
    changed: int
    losses: int


Fact = QueryFacts | EpochFigures | SlotsNow | Standing | Told | Ended | Digest

encode_fact = msgspec.json.Encoder().encode
decode_fact = msgspec.json.Decoder(Fact).decode
