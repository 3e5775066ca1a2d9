"""Which slots send to which, and how many rows: links and rates as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tether.planning.topology import Link, Topology

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def pairs(topology: Topology, link: Link) -> tuple[Ints, Ints]:
    """Sender and receiver of every substream of a link, by receiver, then by sender.

    Blocks of a split or merge differ by at most one slot where the numbers do not divide.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> link = Link("a", "b", "merge")
        >>> topology = Topology((Node("a", 4, rates=1.0), Node("b", 2)), (link,))
        >>> [slots.tolist() for slots in pairs(topology, link)]
        [[0, 1, 2, 3], [0, 0, 1, 1]]
    """
    senders = topology.node(link.source).slots
    receivers = topology.node(link.target).slots
    if link.partitioning == "full":
        return np.tile(np.arange(senders), receivers), np.repeat(np.arange(receivers), senders)
    many = np.arange(max(senders, receivers))
    few = many * min(senders, receivers) // len(many)
    return (many, few) if senders > receivers else (few, many)


def substream_rates(topology: Topology, link: Link, rates: Floats) -> Floats:
    """Rows per second of every substream, in the order of ``pairs``.

    Args:
        topology: The topology.
        link: One of its links.
        rates: Rows per second out of each slot of the sender.
    """
    senders, receivers = pairs(topology, link)
    shares = np.array(link.shares or (1.0,) * topology.node(link.target).slots)[receivers]
    whole = np.bincount(senders, shares, minlength=len(rates))
    alone = np.bincount(senders, minlength=len(rates))
    # A slot whose receivers have no shares at all sends the same to each.
    part = np.where(
        whole[senders] > 0, shares / np.maximum(whole[senders], 1e-300), 1.0 / alone[senders]
    )
    result: Floats = rates[senders] * part
    return result


def output_rates(topology: Topology) -> Mapping[str, Floats]:
    """Rows per second out of every slot: as given, or as they follow from the input.

    An operator with independent inputs sends ``selectivity`` rows for each row; one that joins,
    ``selectivity`` for each combination, for its effective input is the Cartesian product of its
    streams (PPA 2016 §III-A).

    Raises:
        BadValueError: An operator that reads the source has no rates.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> topology = Topology(
        ...     (Node("a", 4, rates=10.0), Node("b", 2, selectivity=0.5)), (Link("a", "b", "merge"),)
        ... )
        >>> output_rates(topology)["b"].tolist()
        [10.0, 10.0]
    """
    found: dict[str, Floats] = {}
    for name in topology.in_order():
        node = topology.node(name)
        if node.rates is not None:
            found[name] = np.broadcast_to(np.asarray(node.rates, float), node.slots).copy()
            continue
        links = topology.inputs_of(name)
        if not links:
            raise BadValueError(
                f"{name!r} has no rates.",
                why="It reads the source, so nothing else tells how much comes in.",
                do="Give the rows per second of each of its slots, or one number for all.",
            )
        streams = [input_rates(topology, link, found[link.source]) for link in links]
        combine = np.prod if node.inputs == "correlated" else np.sum
        with np.errstate(over="ignore"):
            found[name] = node.selectivity * combine(streams, axis=0)
        if not np.isfinite(found[name]).all():
            raise BadValueError(
                f"The rates of {name!r} are too large to be worked out.",
                why="It joins its streams, so the rates of these are multiplied.",
                do="Give its rates, or a smaller selectivity to what comes before it.",
            )
    return found


def input_rates(topology: Topology, link: Link, rates: Floats) -> Floats:
    """Rows per second of a link into each slot of its receiver."""
    _, receivers = pairs(topology, link)
    slots = topology.node(link.target).slots
    flows = substream_rates(topology, link, rates)
    return np.bincount(receivers, flows, minlength=slots).astype(np.float64)
