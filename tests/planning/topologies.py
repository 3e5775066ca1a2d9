"""Random small topologies for property tests: any acyclic shape, with idle slots and joins."""

from __future__ import annotations

from hypothesis import strategies as st

from tether.planning import Link, Node, Topology
from tether.planning.generate import fitting

RATES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 7.0, 0.5])


@st.composite
def topologies(
    draw: st.DrawFn, *, operators: int = 4, slots: int = 3, trees: bool = False
) -> Topology:
    """A topology; with ``trees``, each operator sends to one other, and nothing joins."""
    number = draw(st.integers(1, operators))
    sizes = draw(st.lists(st.integers(1, slots), min_size=number, max_size=number))
    links = []
    for sender in range(number - 1):
        later = list(range(sender + 1, number))
        most = 1 if trees else 2
        receivers = draw(st.lists(st.sampled_from(later), min_size=1, max_size=most, unique=True))
        for receiver in receivers:
            full = draw(st.booleans())
            kind = "full" if full else fitting(sizes[sender], sizes[receiver])
            shares = draw(st.none() | st.tuples(*[RATES] * sizes[receiver]))
            links.append(Link(f"O{sender}", f"O{receiver}", kind, shares))
    fed = {link.target for link in links}
    nodes = []
    for at, size in enumerate(sizes):
        joins = not trees and draw(st.booleans())
        given = f"O{at}" not in fed or (not trees and draw(st.booleans()))
        rates = draw(st.tuples(*[RATES] * size)) if given else None
        nodes.append(Node(f"O{at}", size, "correlated" if joins else "independent", rates))
    return Topology(tuple(nodes), tuple(links))


@st.composite
def with_living(draw: st.DrawFn, **options: object) -> tuple[Topology, set[tuple[str, int]]]:
    """A topology and a set of its slots."""
    topology = draw(topologies(**options))  # type: ignore[arg-type]
    alive = draw(st.sets(st.sampled_from([tuple(slot) for slot in topology.slots])))
    return topology, alive
