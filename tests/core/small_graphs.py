"""Small graphs and operators whose answer does not depend on the schedule, and the clean answer."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tether.core.graph import Channel, Edge, Graph, Node, SlotId

Item = tuple[int, int]
"""A key and a value."""


class Case(NamedTuple):
    """A graph; ``halves``: the operators that send on a half of what they get, until it is 1."""

    name: str
    graph: Graph
    halves: frozenset[str]
    ways: dict[SlotId, list[list[Channel]]]
    """Of each slot the channels to each operator that it sends to."""


def _case(name: str, nodes: tuple[Node, ...], edges: tuple[Edge, ...], *halves: str) -> Case:
    graph = Graph(nodes, edges)
    ways: dict[SlotId, list[list[Channel]]] = {slot: [] for slot in graph.slots}
    for slot in graph.slots:
        for target in dict.fromkeys(way.receiver.operator for way in graph.outputs(slot)):
            outputs = graph.outputs(slot)
            ways[slot].append([way for way in outputs if way.receiver.operator == target])
    return Case(name, graph, frozenset(halves), ways)


# A slot that merges channels as they come does not repeat what it sends.
PIPELINE = _case(
    "pipeline",
    (Node("read", 2), Node("map", 2, repeats=False), Node("sum", 2)),
    (Edge("read", "map"), Edge("map", "sum")),
)
PAIRS = _case(
    "pairs",
    (Node("read", 2), Node("map", 2), Node("sum", 2)),
    (Edge("read", "map", wiring="one-to-one"), Edge("map", "sum")),
)
DIAMOND = _case(
    "diamond",
    (Node("read"), Node("left"), Node("right", 2), Node("join", repeats=False), Node("sum")),
    (
        Edge("read", "left"),
        Edge("read", "right"),
        Edge("left", "join"),
        Edge("right", "join"),
        Edge("join", "sum"),
    ),
)
LOOP = _case(
    "loop",
    (Node("head", 2, repeats=False), Node("body", repeats=False), Node("sum")),
    (
        Edge("head", "body"),
        Edge("body", "head", feedback=True),
        Edge("body", "sum"),
    ),
    "body",
)
CROSSED = _case(
    "crossed",
    (Node("head", 2, repeats=False), Node("body", 2, repeats=False)),
    (Edge("head", "body", wiring="one-to-one"), Edge("body", "head", feedback=True)),
    "body",
)
CASES = (PIPELINE, PAIRS, DIAMOND, LOOP, CROSSED)


def sent(case: Case, slot: SlotId, item: Item) -> list[tuple[Channel, Item]]:
    """What a slot sends on for an item: to each next operator the item, or a half of it back."""
    key, value = item
    found = []
    for ways in case.ways[slot]:
        back = ways[0].feedback
        if not back or (slot.operator in case.halves and value > 1):
            made = (key + 1, value // 2) if back else item
            found.append((ways[made[0] % len(ways)], made))
    return found


def add(state: Counter[Item], item: Item) -> None:
    """Process an item: the state counts what it has seen."""
    state[item] += 1


Answer = dict[SlotId, Counter[Item]]


def clean_answer(case: Case, streams: dict[Channel, list[Item]]) -> Answer:
    """The answer of a run in which nothing fails."""
    answer: Answer = {slot: Counter() for slot in case.graph.slots}
    todo = [(way.receiver, item) for way, items in streams.items() for item in items]
    while todo:
        slot, item = todo.pop()
        add(answer[slot], item)
        todo += [(way.receiver, on) for way, on in sent(case, slot, item)]
    return answer


def streams_of(case: Case, items: list[int]) -> dict[Channel, list[Item]]:
    """Deal items to the source channels."""
    ways = [way for way in case.graph.channels() if way.from_source]
    return {
        way: [(place, 1 + value) for place, value in enumerate(items) if place % len(ways) == n]
        for n, way in enumerate(ways)
    }
