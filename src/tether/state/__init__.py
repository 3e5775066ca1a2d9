"""Resident state: primitives that know their distance from their backup, in persistent arenas."""

from tether.state.arena import Arena, Refused
from tether.state.header import Phase
from tether.state.identity import Identity, Owner
from tether.state.matrix import Matrix
from tether.state.number import Number
from tether.state.objects import Object, StateObject
from tether.state.primitive import Export, Primitive
from tether.state.roots import arena_directory, arena_root, sweep
from tether.state.sets import Set
from tether.state.settling import PendingExport
from tether.state.slot import SlotState
from tether.state.table import Lookup, Table
from tether.state.vector import Vector

__all__ = [
    "Arena",
    "Export",
    "Identity",
    "Lookup",
    "Matrix",
    "Number",
    "Object",
    "Owner",
    "PendingExport",
    "Phase",
    "Primitive",
    "Refused",
    "Set",
    "SlotState",
    "StateObject",
    "Table",
    "Vector",
    "arena_directory",
    "arena_root",
    "sweep",
]
