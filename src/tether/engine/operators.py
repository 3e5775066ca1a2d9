"""What the engine knows of a query: its operators, whatever host runs them, and its settings."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.ids import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from tether.chaos.faults import Fault
    from tether.core.graph import Graph
    from tether.core.placement import Placement
    from tether.core.windows import Window
    from tether.engine.messages import ArenaScope
    from tether.planning.planners import PlannerName
    from tether.planning.topology import Topology
    from tether.policies.policy import Policy

    TopologyOf = Callable[[Mapping[str, Sequence[float]]], Topology]
    """Makes the topology of a query from the measured rates of its slots, by operator."""


@dataclass(frozen=True, kw_only=True)
class QueryOperator:
    """One operator of a query, with its policy and its place in the graph."""

    name: str
    """Its name in stories, backups and errors."""
    slots: int
    blob: bytes
    """The user's operator, pickled once for the whole query."""
    policy: Policy
    placement: Placement
    window: Window | None
    output_arrow: pa.Schema
    feedback_arrow: pa.Schema | None = None
    feedback_to: str | None = None
    """The operator that its feedback goes to."""
    declared_slots: int = 0
    """How many slots the program asks for, where a command has changed the number; 0: ``slots``."""
    keyed: bool = True
    """Whether a row's key decides to which slot it goes."""
    event_time: str | None = None
    """Column with the rows' event time, where it has one."""
    drops_event_time: bool = False
    """Whether that column was added for the clock only, and is removed before the operator gets the
    rows."""
    lateness: float = 0.0
    """How many seconds rows may be late."""
    repeats: bool = False
    """Whether the same rows of the source always lead to the same state and output."""
    alike: Mapping[str, str] = field(default_factory=dict)
    """Numbers that are merged over all slots when the number of slots changes, each by "max" or
    "min"."""
    merges: bool = False
    """Whether rows of several epochs lead to the same state when they come as one epoch."""
    program: dict[str, Any] = field(default_factory=dict)
    """The parts of the program that the meaning of the state depends on: version and parameters."""
    state_specs: dict[str, Any] = field(default_factory=dict)
    key_types: dict[str, str] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Identifies the program in arenas; an arena of another program is refused."""
        parts = [
            self.program,
            self.state_specs,
            self.slots,
            self.key_types,
            self.policy.keeps_backups,
        ]
        return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()

    @property
    def in_program(self) -> int:
        """The number of slots that the program says."""
        return self.declared_slots or self.slots

    @property
    def keeps_clock(self) -> bool:
        """Whether the end of a window, and with it the state, depends on event time."""
        window = self.window
        return window is not None and window.by == "seconds" and self.policy.keeps_backups


def fingerprint(operators: list[QueryOperator]) -> dict[str, Any]:
    """The meaning of the stored state of some operators, as a manifest compares it."""
    return {
        "program": {p.name: p.program for p in operators},
        "state": {p.name: p.state_specs for p in operators},
        "slots": {p.name: p.in_program for p in operators},
        "policy": {p.name: dict(p.policy.describe()) for p in operators},
        "keys": {p.name: p.key_types for p in operators},
    }


@dataclass(frozen=True, kw_only=True)
class CopyPlan:
    """Which slots get a copy, and where."""

    copied: Mapping[str, tuple[Slot, ...]]
    """Slots that get one, by operator."""
    standby: int = 0
    """Number of executors that hold copies only; 0: a copy may be on any executor but its slot's."""
    gain: float | None = None
    """Copies move when another plan has at least this much more fidelity; None: they stay."""
    planner: PlannerName = "structure-aware"
    topology: TopologyOf | None = None
    """Makes the topology that copies are planned for."""

    @property
    def fewest(self) -> int:
        """Copies can be placed as planned only with at least one executor more than this."""
        return max(1, self.standby)


@dataclass(frozen=True, kw_only=True)
class QuerySettings:
    """What holds for all operators of a query."""

    graph: Graph
    """Who sends to whom."""
    arena_scope: ArenaScope = "node"
    arena_dir: str | None = None
    allow_changed: tuple[str, ...] = ()
    accept_damage: bool = False
    """Whether to continue from a backup that lacks an unknown amount of state."""
    faults: tuple[Fault, ...] = ()
    readable_epochs: int = 100
    """How many epochs back the sources can be read again."""
    copies: CopyPlan | None = None
    """Which slots get a copy; None where there are no copies."""
    staleness: int = 0
    """How many epochs one lane may be behind the other; 0 where there is only one."""
