"""Topologies from files and from queries."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.errors import BadValueError, TetherError
from tether.planning.topology import Link, Node, Topology

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tether.core.graph import Graph
    from tether.planning.topology import Partitioning


def read_topology(path: str | Path) -> Topology:
    """Read a topology from a file: TOML or JSON, by its ending.

    It holds ``operators`` and ``links`` with the fields of :class:`Node` and :class:`Link`, and may
    name ``outputs``.

    Raises:
        BadValueError: It cannot be read, or is no topology; says why.

    Example:
        >>> text = '''
        ... [[operators]]
        ... name = "parse"
        ... slots = 4
        ... rates = [900, 300, 200, 200]
        ... [[operators]]
        ... name = "count"
        ... slots = 2
        ... [[links]]
        ... source = "parse"
        ... target = "count"
        ... partitioning = "merge"
        ... '''
        >>> _ = Path("topology.toml").write_text(text)
        >>> read_topology("topology.toml").sinks
        ('count',)
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else msgspec.json.decode(text)
        return topology_from(found)
    except TetherError:
        raise
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise BadValueError(
            f"{path.name} holds no topology.",
            why=str(error),
            do="Give a TOML or JSON file with operators and links; docs/planning.md has an example.",
        ) from error


def topology_from(found: Any) -> Topology:
    """A topology from what a file holds.

    Raises:
        BadValueError: A value is not usable.
        msgspec.ValidationError: A field is missing, unknown, or of another type.
    """
    try:
        return msgspec.convert(found, Topology)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, TetherError):
            raise error.__cause__ from None  # a check of ours, which msgspec has wrapped
        raise


def topology_of(
    graph: Graph,
    *,
    rates: Mapping[str, float | Sequence[float]],
    correlated: Collection[str] = (),
    partitionings: Mapping[tuple[str, str], Partitioning] | None = None,
    outputs: Collection[str] = (),
) -> Topology:
    """The topology of a query's graph. Feedback is left out: it is no way to the output.

    Args:
        graph: The query's graph.
        rates: Rows per second out of the slots of operators: one number for each slot, or one for all.
            Operators that read the source need them.
        correlated: Operators that join their inputs.
        partitionings: What is known of edges beyond the graph's wiring: from and to which operator. Over
            a split or merge, slots send to those of equal remainder: 8 slots that merge into 4 send
            from 0 and 4 to 0, from 1 and 5 to 1. So it is where a sender keeps the key of its rows
            and the receiver has the same key, for the slot is the key's hash modulo the slots.
        outputs: Operators whose output is the answer; by default those that send to no other.

    Raises:
        BadValueError: A name is not in the graph, or rates are missing.

    Example:
        >>> from tether.core.graph import Edge, Graph, Node as Operator
        >>> graph = Graph((Operator("parse", 4), Operator("count", 2)), (Edge("parse", "count"),))
        >>> topology_of(graph, rates={"parse": 100.0}).links[0].partitioning
        'full'
    """
    known = {} if partitionings is None else dict(partitionings)
    names = {node.name for node in graph.nodes}
    edges = {(edge.source, edge.target) for edge in graph.edges if not edge.feedback}
    strange = sorted((set(rates) | set(correlated)) - names)
    strange += [f"{source} -> {target}" for source, target in sorted(set(known) - edges)]
    if strange:
        raise BadValueError(
            f"The query has no {', '.join(map(repr, strange))}.",
            why=f"Its operators are {sorted(names)}; its edges {sorted(edges)}.",
            do="Name operators and edges of the query.",
        )
    links = tuple(
        Link(
            edge.source,
            edge.target,
            known.get(
                (edge.source, edge.target),
                "full" if edge.wiring == "shuffle" else "one-to-one",
            ),
        )
        for edge in graph.edges
        if not edge.feedback
    )
    orders = by_remainder({node.name: node.slots for node in graph.nodes}, links)
    nodes = tuple(
        Node(
            node.name,
            node.slots,
            "correlated" if node.name in correlated else "independent",
            _rates(rates.get(node.name), orders[node.name]),
            numbers=orders[node.name],
        )
        for node in graph.nodes
    )
    return Topology(nodes, links, tuple(outputs))


def by_remainder(
    slots: Mapping[str, int], links: Iterable[Link]
) -> dict[str, tuple[int, ...] | None]:
    """An order of each operator's slots in which those of equal remainder lie together.

    Args:
        slots: Numbers of slots by operator.
        links: Who sends to whom.

    Raises:
        BadValueError: Over a split or merge, neither number of slots divides the other.

    Example:
        >>> by_remainder({"a": 4, "b": 2}, [Link("a", "b", "merge")])
        {'a': (0, 2, 1, 3), 'b': (0, 1)}
    """
    group = {name: {name} for name in slots}
    for link in links:
        few, many = sorted((slots[link.source], slots[link.target]))
        if link.partitioning == "full":
            continue
        if many % few:
            raise BadValueError(
                f"{link.source!r} cannot send to {link.target!r} by {link.partitioning}.",
                why=f"Slots of equal key have equal remainders only where one number of slots divides "
                f"the other; {few} does not divide {many}.",
                do="Change the number of slots, or leave the partitioning out.",
            )
        both = group[link.source] | group[link.target]
        group |= dict.fromkeys(both, both)
    orders: dict[str, tuple[int, ...] | None] = {}
    for name, number in slots.items():
        sizes = sorted({slots[other] for other in group[name]})
        ordered = sorted(range(number), key=lambda slot: [slot % size for size in sizes])
        orders[name] = tuple(ordered) if len(sizes) > 1 else None
    return orders


def _rates(
    given: float | Sequence[float] | None, order: Sequence[int] | None
) -> tuple[float, ...] | float | None:
    if given is None or isinstance(given, int | float):
        return given
    each = tuple(float(rate) for rate in given)
    if order is None or len(each) != len(order):
        return each  # a wrong number of them is refused where all are checked
    return tuple(each[slot] for slot in order)
