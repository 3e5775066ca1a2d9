"""The topologies of PPA 2016, in shape: its examples (fig. 1, 2 and 6) and its queries (fig. 11).

The paper draws them and does not tell every number. Where a number is not told, it is chosen so that
what the text says of the figure holds; the docstrings say which.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tether.planning.topology import Link, Node, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.planning.topology import Inputs

Rates = float | tuple[float, ...]


def figure_1(inputs: Inputs = "independent") -> Topology:
    """Four operators; 16 complete trees, or 8 if the third joins its inputs (§III-B).

    The numbers of slots are ours: with 4 slots of O3 that have one sender in O1 and one in O2 each,
    and 2 slots of O4, the numbers of trees are those of the text.

    Example:
        >>> from tether.planning import count_trees
        >>> count_trees(figure_1("independent")), count_trees(figure_1("correlated"))
        (16, 8)
    """
    nodes = (
        Node("O1", 2, rates=1.0),
        Node("O2", 4, rates=1.0),
        Node("O3", 4, inputs),
        Node("O4", 2),
    )
    links = (
        Link("O1", "O3", "split"),
        Link("O2", "O3", "one-to-one"),
        Link("O3", "O4", "full"),
    )
    return Topology(nodes, links)


def figure_2(inputs: Inputs = "independent") -> Topology:
    """Two operators that send to one slot; without slot 1 of O2 it loses 1/4, or 2/5 if it joins.

    The rates are ours: those two losses ask for λ22 : λ21 : (λ11 + λ12) = 2 : 3 : 3 (§III-A).
    """
    nodes = (
        Node("O1", 2, rates=(1.0, 2.0)),
        Node("O2", 2, rates=(3.0, 2.0)),
        Node("O3", 1, inputs),
    )
    return Topology(nodes, (Link("O1", "O3"), Link("O2", "O3")))


def figure_6(rate: float = 1000.0) -> Topology:
    """A source of 16 slots and four operators of 8, 4, 2 and 1, each slot fed by two (§VI-A).

    Args:
        rate: Rows per second of each slot of the source: 1,000 or 2,000 in the paper.
    """
    sizes = (16, 8, 4, 2, 1)
    names = ("source", "O1", "O2", "O3", "O4")
    nodes = tuple(
        Node(name, slots, rates=rate if name == "source" else None, selectivity=0.5)
        for name, slots in zip(names, sizes, strict=True)
    )
    return Topology(nodes, tuple(Link(one, other, "merge") for one, other in pairwise(names)))


def top_k_query(requests: Sequence[float], *, merging: int = 4) -> Topology:
    """Q1: requests by server, counted in slices, merged, and merged into the top 100 (§VI-B).

    Args:
        requests: Rows per second that come to each slot of the first operator.
        merging: Slots of the second.
    """
    nodes = (
        Node("slices", len(requests), rates=tuple(requests)),
        Node("merged", merging),
        Node("top", 1),
    )
    return Topology(nodes, (Link("slices", "merged", "merge"), Link("merged", "top", "merge")))


def incident_query(
    locations: Sequence[float], reports: Sequence[float], jams: Sequence[float]
) -> Topology:
    """Q2: speeds and distinct incidents of road segments, joined, and the jams gathered (§VI-B).

    Segments are shared out to the slots of all operators in the same order, so a slot of the join
    gets the speeds of a block of slots, and the incidents of one.

    Args:
        locations: Rows per second that each slot of the first operator sends.
        reports: Of the second operator, which makes distinct incidents of reports.
        jams: Of the join; it has as many slots as there are numbers of ``reports``.
    """
    nodes = (
        Node("speeds", len(locations), rates=tuple(locations)),
        Node("incidents", len(reports), rates=tuple(reports)),
        Node("jams", len(reports), "correlated", tuple(jams)),
        Node("report", 1),
    )
    links = (
        Link("speeds", "jams", "merge" if len(locations) > len(reports) else "one-to-one"),
        Link("incidents", "jams", "one-to-one"),
        Link("jams", "report", "merge" if len(reports) > 1 else "one-to-one"),
    )
    return Topology(nodes, links)
