"""The graph of a query: operators, their slots, and which sends to which.

Snapshots and recovery need only this: which channels lead into a slot, which of them close a cycle, and
who must send again when a slot goes back. Channels are first in, first out.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import msgspec

from tether.core.checks import count
from tether.core.errors import BadValueError
from tether.core.ids import Slot, each_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Wiring = Literal["shuffle", "one-to-one"]
"""Whether each slot sends to all slots of the next operator, or only to the one of its number."""

_One = TypeVar("_One")

SOURCE = ""
"""Operator name of the senders of source channels: the stream itself."""


class SlotId(NamedTuple):
    """A slot of the graph."""

    operator: str
    slot: Slot


class Channel(NamedTuple):
    """A channel for items from one slot, or from the source (operator ``SOURCE``), to a slot."""

    sender: SlotId
    receiver: SlotId
    feedback: bool = False

    @property
    def from_source(self) -> bool:
        """Whether it comes from the source."""
        return self.sender.operator == SOURCE


class Node(msgspec.Struct, frozen=True):
    """An operator of the graph.

    Args:
        name: Its name.
        slots: Number of its slots.
        repeats: Whether a slot that processes the same items again, from the same state, sends the same
            items under the same numbers, in whatever order its channels deliver them. True where items
            are numbered by epoch; False where a slot merges channels as they come.
    """

    name: str
    slots: int = 1
    repeats: bool = True


class Edge(msgspec.Struct, frozen=True):
    """Operator ``source`` sends to operator ``target``; ``feedback`` if that closes a cycle."""

    source: str
    target: str
    feedback: bool = False
    wiring: Wiring = "shuffle"


class Graph(msgspec.Struct, frozen=True):
    """A query's operators and edges, checked.

    Operators without a regular (not feedback) input read the source. Without its feedback edges the
    graph has no cycle; each feedback edge closes one.

    Example:
        >>> graph = Graph((Node("train", 2), Node("merge")), (
        ...     Edge("train", "merge"), Edge("merge", "train", feedback=True)))
        >>> [channel.sender.operator for channel in graph.inputs(SlotId("train", 0))]
        ['', 'merge']
        >>> sorted(slot.operator for slot in graph.upstream([SlotId("train", 1)]))
        ['merge', 'train', 'train']
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        for node in self.nodes:
            count("slots", node.slots, unit="slots")
            if not node.name or names.count(node.name) > 1:
                raise BadValueError(
                    f"{node.name!r} cannot be an operator's name.",
                    why="It is empty, or another operator has it.",
                    do="Give every operator a name of its own.",
                )
        for edge in self.edges:
            self._check_edge(edge)
        self._check_order()

    def _check_edge(self, edge: Edge) -> None:
        unknown = {edge.source, edge.target} - {node.name for node in self.nodes}
        if unknown:
            raise BadValueError(
                f"An edge names {sorted(unknown)}.",
                why="No operator has that name.",
                do="Connect operators of the graph.",
            )
        ends = [(other.source, other.target) for other in self.edges]
        if ends.count((edge.source, edge.target)) > 1:
            raise BadValueError(
                f"{edge.source!r} sends to {edge.target!r} twice.",
                why="Channels are told apart by their ends.",
                do="Leave one of the two edges out.",
            )
        if edge.wiring == "one-to-one" and self._slots(edge.source) != self._slots(edge.target):
            raise BadValueError(
                f"{edge.source!r} cannot send to {edge.target!r} one to one.",
                why="They do not have equally many slots.",
                do="Give both the same number of slots, or shuffle.",
            )

    def _check_order(self) -> None:
        order = self.in_order()
        stuck = [node.name for node in self.nodes if node.name not in order]
        if stuck:
            raise BadValueError(
                f"{stuck} lie on, or behind, a cycle without a feedback edge.",
                why="A barrier would wait for itself there for ever.",
                do="Mark the edge that leads back as feedback, for example by mark_feedback().",
            )
        for edge in self.edges:
            if edge.feedback and edge.source not in self._reached(edge.target):
                raise BadValueError(
                    f"The edge from {edge.source!r} to {edge.target!r} is no feedback.",
                    why="It closes no cycle, and its items would be logged for nothing.",
                    do="Leave the mark out.",
                )

    def _slots(self, name: str) -> int:
        return next(node.slots for node in self.nodes if node.name == name)

    def _reached(self, name: str) -> set[str]:
        edges = [edge for edge in self.edges if not edge.feedback]
        return _closure([name], lambda one: [e.target for e in edges if e.source == one])

    def in_order(self) -> list[str]:
        """Operators in an order where each comes after all that send to it, except by feedback."""
        order: list[str] = []
        waiting = [node.name for node in self.nodes]
        regular = [edge for edge in self.edges if not edge.feedback]
        while waiting:
            ready = [
                name
                for name in waiting
                if all(edge.source in order for edge in regular if edge.target == name)
            ]
            if not ready:
                return order
            order += ready
            waiting = [name for name in waiting if name not in ready]
        return order

    @property
    def slots(self) -> tuple[SlotId, ...]:
        """All slots of all operators."""
        return tuple(
            SlotId(node.name, slot) for node in self.nodes for slot in each_slot(node.slots)
        )

    @property
    def cyclic(self) -> bool:
        """Whether a snapshot must hold items in flight."""
        return any(edge.feedback for edge in self.edges)

    def channels(self) -> tuple[Channel, ...]:
        """Every channel, those from the source first."""
        fed = self._fed()
        sources = [
            Channel(SlotId(SOURCE, slot.slot), slot)
            for slot in self.slots
            if slot.operator not in fed
        ]
        between = [
            Channel(SlotId(edge.source, sender), SlotId(edge.target, receiver), edge.feedback)
            for edge in self.edges
            for sender in each_slot(self._slots(edge.source))
            for receiver in self._other_ends(edge, edge.target, sender)
        ]
        return (*sources, *between)

    def inputs(self, slot: SlotId) -> tuple[Channel, ...]:
        """Channels into a slot."""
        source = () if slot.operator in self._fed() else (SlotId(SOURCE, slot.slot),)
        return tuple(Channel(sender, slot) for sender in source) + tuple(
            Channel(SlotId(edge.source, sender), slot, edge.feedback)
            for edge in self.edges
            if edge.target == slot.operator
            for sender in self._other_ends(edge, edge.source, slot.slot)
        )

    def outputs(self, slot: SlotId) -> tuple[Channel, ...]:
        """Channels out of a slot."""
        return tuple(
            Channel(slot, SlotId(edge.target, receiver), edge.feedback)
            for edge in self.edges
            if edge.source == slot.operator
            for receiver in self._other_ends(edge, edge.target, slot.slot)
        )

    def _fed(self) -> set[str]:
        """Operators that have another input than the source."""
        return {edge.target for edge in self.edges if not edge.feedback}

    def _other_ends(self, edge: Edge, operator: str, slot: Slot) -> Iterable[Slot]:
        """Slots of an operator that an edge connects with a slot of the other one."""
        return (slot,) if edge.wiring == "one-to-one" else each_slot(self._slots(operator))

    def upstream(self, slots: Iterable[SlotId]) -> frozenset[SlotId]:
        """These slots and all that send to them, directly or not, feedback included."""
        return self._connected(slots, [(edge.target, edge.source, edge) for edge in self.edges])

    def downstream(self, slots: Iterable[SlotId]) -> frozenset[SlotId]:
        """These slots and all that they send to, directly or not, feedback included."""
        return self._connected(slots, [(edge.source, edge.target, edge) for edge in self.edges])

    def _connected(
        self, slots: Iterable[SlotId], ways: Iterable[tuple[str, str, Edge]]
    ) -> frozenset[SlotId]:
        """What can be reached from some slots. Looks at slots and edges, not at every channel."""
        leading: dict[str, list[tuple[str, Edge]]] = {}
        for near, far, edge in ways:
            leading.setdefault(near, []).append((far, edge))
        whole: set[str] = set()  # operators of which every slot is reached already

        def following(one: SlotId) -> Iterable[SlotId]:
            for far, edge in leading.get(one.operator, ()):
                if far not in whole:
                    if edge.wiring == "shuffle":
                        whole.add(far)
                    yield from (SlotId(far, s) for s in self._other_ends(edge, far, one.slot))

        return frozenset(_closure(slots, following))

    def repeats(self, slot: SlotId) -> bool:
        """See :attr:`Node.repeats`."""
        return next(node.repeats for node in self.nodes if node.name == slot.operator)


def mark_feedback(nodes: Iterable[str], edges: Iterable[tuple[str, str]]) -> tuple[Edge, ...]:
    """Find the edges that lead back, by depth-first search (ABS 2015 §4.3).

    Args:
        nodes: Names of the operators, those that read the source first.
        edges: Pairs of names.

    Example:
        >>> [edge.feedback for edge in mark_feedback("ab", [("a", "b"), ("b", "a")])]
        [False, True]
    """
    pairs = list(edges)
    back: set[tuple[str, str]] = set()
    done: set[str] = set()
    for root in nodes:
        path: list[str] = []
        todo = [(root, False)]
        while todo:
            name, leaving = todo.pop()
            if leaving:
                path.pop()
                done.add(name)
                continue
            if name in done or name in path:
                continue
            path.append(name)
            todo.append((name, True))
            for pair in reversed(pairs):  # so that the first one is visited first
                if pair[0] == name and pair[1] in path:
                    back.add(pair)
                elif pair[0] == name and pair[1] not in done:
                    todo.append((pair[1], False))
    return tuple(Edge(*pair, feedback=pair in back) for pair in pairs)


def _closure(start: Iterable[_One], following: Callable[[_One], Iterable[_One]]) -> set[_One]:
    found = set(start)
    todo = deque(found)
    while todo:
        for one in following(todo.popleft()):
            if one not in found:
                found.add(one)
                todo.append(one)
    return found
