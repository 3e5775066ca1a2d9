"""A topology in parts that can be planned one by one (PPA 2016 §IV-C)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.planning.topology import Link, Topology


class SubTopology(NamedTuple):
    """Operators that are planned together.

    ``kind`` is "full" if all links between them are full: which slots of one operator are best does
    not depend on those of another. "structured" if they hang together by other links: there what
    matters is that chosen slots are connected.
    """

    kind: Literal["full", "structured"]
    operators: tuple[str, ...]


def sub_topologies(topology: Topology) -> tuple[SubTopology, ...]:
    """Split a topology so that only full links lead from one part to another (PPA 2016 §IV-C3).

    The paper searches from the sink, and ends a part wherever a link does not fit its kind. The same
    parts come out of this: operators with a link that is not full between them belong together; those
    that are left have full links only, and neighbours among them belong together.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> nodes = tuple(Node(name, 2, rates=1.0) for name in "abcd")
        >>> links = (Link("a", "b", "one-to-one"), Link("b", "c"), Link("c", "d"))
        >>> for part in sub_topologies(Topology(nodes, links)):
        ...     print(part.kind, *part.operators)
        structured a b
        full c d
    """
    order = topology.in_order()
    tied = _joined(order, (link for link in topology.links if not topology.is_full(link)))
    alone = {group[0] for group in tied if len(group) == 1}
    free = _joined(
        [name for name in order if name in alone],
        (link for link in topology.links if {link.source, link.target} <= alone),
    )
    parts = [SubTopology("structured", group) for group in tied if len(group) > 1]
    parts += [SubTopology("full", group) for group in free]
    return tuple(sorted(parts, key=lambda part: order.index(part.operators[0])))


def units(topology: Topology, operators: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Split a structured sub-topology so that each part has few trees (PPA 2016 §IV-C1, fig. 3).

    Trees multiply where a slot merges several senders and then splits its output, or joins several
    senders with another stream. So a merge is a boundary where a split or a join follows, at once as
    in the paper, or further on. Within a unit a tree is then fixed by one of its slots.

    Args:
        topology: The topology.
        operators: Those of the sub-topology.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> nodes = (Node("a", 4, rates=1.0), Node("b", 2), Node("c", 4))
        >>> units(Topology(nodes, (Link("a", "b", "merge"), Link("b", "c", "split"))), "abc")
        (('a',), ('b', 'c'))
    """
    names = [name for name in topology.in_order() if name in set(operators)]
    links = [link for link in topology.links if {link.source, link.target} <= set(names)]
    links = [link for link in links if not topology.is_full(link)]
    multiplies = {link.source for link in links if link.partitioning == "split"}
    multiplies |= {
        name
        for name in names
        if topology.node(name).inputs == "correlated" and len(topology.inputs_of(name)) > 1
    }
    for name in reversed(names):
        if any(link.source == name and link.target in multiplies for link in links):
            multiplies.add(name)
    return _joined(
        names,
        (
            link
            for link in links
            if not (link.partitioning == "merge" and link.target in multiplies)
        ),
    )


def _joined(names: Iterable[str], links: Iterable[Link]) -> tuple[tuple[str, ...], ...]:
    """Groups of operators that links connect, in the order of the names."""
    names = list(names)
    group = {name: {name} for name in names}
    for link in links:
        both = group[link.source] | group[link.target]
        group |= dict.fromkeys(both, both)
    found = dict.fromkeys(frozenset(group[name]) for name in names)
    return tuple(tuple(name for name in names if name in one) for one in found)
