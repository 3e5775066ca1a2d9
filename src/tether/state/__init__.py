"""Resident state: primitives that know their distance from their backup, in arenas that last."""

from tether.state.arena import Arena, Refused
from tether.state.header import Phase
from tether.state.identity import Identity, Owner
from tether.state.primitive import Export, Primitive
from tether.state.roots import arena_directory, arena_root, sweep
from tether.state.slot import SlotState
from tether.state.table import Lookup, Table
from tether.state.vector import Vector

__all__ = [
    "Arena",
    "Export",
    "Identity",
    "Lookup",
    "Owner",
    "Phase",
    "Primitive",
    "Refused",
    "SlotState",
    "Table",
    "Vector",
    "arena_directory",
    "arena_root",
    "sweep",
]
