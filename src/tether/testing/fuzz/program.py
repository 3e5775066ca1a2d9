"""What a random program is: a query, its rows, and all that happens to it. Plain values, as JSON.

A row has the columns of ``COLUMNS``. Numbers are small, and fractions are quarters, so that sums of them
are exact in any order.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

COLUMNS = ("k", "u", "n", "v", "m", "i", "p")
"""A key of 0 to 7, one of 0 to 3, a whole number, a fraction, a mark of 0 to 2 by which steps choose
their rows, the row's own number, the epoch that it is of. Its event time, in seconds, is ``p`` too."""

KEYS, USERS = 8, 4

Row = dict[str, Any]


class State(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One primitive of an operator's state."""

    name: str
    kind: Literal["number", "vector", "matrix", "table", "set", "object"]
    divergence: str
    dtype: Literal["int64", "float64"] = "int64"
    keys: tuple[str, ...] = ()
    weight: float = 1.0
    start: float | Literal["inf", "-inf"] = 0.0
    """For a table: the value that a new key starts from."""

    @property
    def column(self) -> str:
        """The column of the rows that it takes its numbers from."""
        return "n" if self.dtype == "int64" else "v"


class Step(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One thing that an operator does to its state."""

    state: str
    what: Literal["add", "put", "maximum", "minimum", "discard", "clear", "halve"]
    on: Literal["rows", "epoch", "window", "feedback"] = "rows"
    mark: int | None = None
    """Only for rows of this mark; a ``clear`` happens if a batch has one."""


class Stage(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One operator of the chain."""

    name: str
    slots: int
    key: tuple[str, ...]
    states: tuple[State, ...]
    steps: tuple[Step, ...]
    disjoint: bool = False
    """Whether it promises that no entry is in two slots."""
    emits: Literal["rows", "sums", "totals", "nothing"] = "rows"
    """What it sends on: its rows, sums of an epoch's rows by ``k``, or the changed entries of its first
    state, as they are now."""
    feeds_back: bool = False
    """Whether each of its slots sends an item to the first operator, in every epoch."""

    @property
    def divisible(self) -> bool:
        """Whether each entry belongs to one key, so that the state can be divided by it."""
        kinds = {state.kind for state in self.states} <= {"table", "set"}
        keyed = bool(self.key) and all(set(self.key) <= set(one.keys) for one in self.states)
        fed = self.feeds_back or any(step.on == "feedback" for step in self.steps)
        return kinds and keyed and not fed  # feedback goes to every slot, whatever its key


class Window(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How much of the stream an answer covers."""

    kind: Literal["hopping", "sliding", "decaying"]
    length: int
    by: Literal["epochs", "items", "seconds"] = "epochs"


class Policy(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Arguments of a policy."""

    kind: Literal[
        "none", "approximate", "mini-batch", "upstream-backup", "barrier", "partially-active"
    ]
    theta: float = 0.0
    lost_items: float = 0.0
    early: float = 1.0
    target: float = 0.5
    rounding: float = 0.0
    every: float = 0.25
    """The interval of upstream backup."""
    interval: int = 2
    mode: Literal["async", "sync"] = "async"
    heal: int = 0
    """For the approximate policy: epochs between exact states; 0 if losses are not healed."""
    meanwhile: Literal["", "skip", "stale"] = ""
    strategy: Literal["process", "delay", "suspend"] = "delay"
    share: float = 0.5
    """For partially active replication: the share of slots with a copy. Slots get the rows of an epoch
    in the order of ``COLUMNS`` then."""

    @property
    def has_twin(self) -> bool:
        """Whether a twin reads again what was lost."""
        return bool(self.heal or self.meanwhile)

    @property
    def exact(self) -> bool:
        """Whether a loss costs nothing."""
        return self.kind not in ("none", "approximate")


class Strike(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A fault at a named point of the protocols; see :class:`tether.chaos.faults.Fault`."""

    point: str
    action: str
    epoch: int
    slot: int | None = None
    operator: str | None = None
    until: int = 0
    """For "hold": the epoch before which it is released."""


class Event(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What happens before an epoch, while no task runs.

    "restart": the query is stopped and started again, under another policy if there is one. "crash": its
    driver is killed. "lose": a slot's arena is removed; all, where no slot is named. "executor": the
    executor that holds a slot is killed. "damage": the driver is killed, and the backup directory is
    spoiled while it is down. "rescale": an operator is given another number of slots.
    """

    what: Literal["restart", "crash", "lose", "executor", "damage", "rescale"]
    epoch: int
    operator: str | None = None
    slot: int | None = None
    policy: Policy | None = None
    damage: Literal["flip-commit", "cut-commits", "flip-frame", "cut-frame"] | None = None
    place: float = 0.5
    """Position in the file, from 0 to 1."""
    slots: int = 0
    """The new number of them."""


Taking = Literal["all", "twice", "part", "part-unheard", "nothing", "all-part", "part-all", "fail"]
"""What a sink does with its rows: it may also fail, once."""


class Program(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A query and its fate."""

    stages: tuple[Stage, ...]
    policy: Policy
    epochs: tuple[tuple[Row, ...], ...]
    window: Window | None = None
    own_policies: bool = False
    """Whether each operator has a budget of its own."""
    batch_rows: int = 4
    compacts: bool = False
    """Whether logs of backups are compacted however short they are."""
    arena_scope: Literal["node", "executor"] = "node"
    sinks: tuple[Taking, ...] = ("all",)
    """What the sink does in each epoch, over and over."""
    strikes: tuple[Strike, ...] = ()
    events: tuple[Event, ...] = ()

    def policies(self) -> list[Policy]:
        """All policies that it ever runs under."""
        return [self.policy, *(event.policy for event in self.events if event.policy is not None)]


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Program).decode
