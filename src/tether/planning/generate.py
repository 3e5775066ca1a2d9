"""Random topologies of a given kind, to compare planners on (PPA 2016 §VI-C)."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.planning.topology import Link, Node, Partitioning, Topology, one_of

Structure = Literal["structured", "full", "general"]


class Specification(msgspec.Struct, frozen=True, kw_only=True):
    """What random topologies have in common.

    Args:
        operators: Least and greatest number of operators.
        slots: Least and greatest number of slots of an operator.
        structure: "structured": links are one-to-one, splits and merges, as the numbers of slots
            have it. "full": all links are full. "general": each is full with probability 1/2.
        skew: Zipf's s of the rates of an operator's slots; 0: all alike.
        joins: Probability that an operator with several input streams joins them.

    Example:
        >>> Specification(skew=0.1).operators
        (5, 10)
    """

    operators: tuple[int, int] = (5, 10)
    slots: tuple[int, int] = (1, 10)
    structure: Structure = "structured"
    skew: float = 0.0
    joins: float = 0.0

    def __post_init__(self) -> None:
        for name, (least, most) in {"operators": self.operators, "slots": self.slots}.items():
            count(name, least, unit=name)
            if most < least:
                raise BadValueError(
                    f"{name}=({least}, {most}): the greatest number is below the least."
                )
        one_of("structure", self.structure, ("structured", "full", "general"))
        amount("skew", self.skew, unit="Zipf's s", zero="all alike", infinite=None)
        if amount("joins", self.joins, unit="joins", zero="none", infinite=None) > 1:
            raise BadValueError(f"joins={self.joins} is no probability.", do="Give at most 1.")


def random_topology(specification: Specification, seed: int) -> Topology:
    """A topology of a kind; the same for the same seed.

    Every operator but the last sends to one later operator, drawn at random. Each operator sends 1,000
    rows a second in all.

    Example:
        >>> topology = random_topology(Specification(operators=(5, 5)), seed=1)
        >>> len(topology.nodes), len(topology.links), len(topology.sinks)
        (5, 4, 1)
    """
    random = np.random.default_rng(seed)
    number = int(random.integers(*specification.operators, endpoint=True))
    slots = random.integers(*specification.slots, size=number, endpoint=True).tolist()
    targets = [int(random.integers(at + 1, number)) for at in range(number - 1)]
    nodes = []
    for at in range(number):
        weights = np.arange(1, slots[at] + 1) ** -float(specification.skew)
        rates = 1000.0 * random.permutation(weights / weights.sum())
        joins = targets.count(at) > 1 and random.random() < specification.joins
        inputs: Literal["independent", "correlated"] = "correlated" if joins else "independent"
        nodes.append(Node(f"O{at + 1}", slots[at], inputs, tuple(rates.tolist())))
    links = tuple(
        Link(
            f"O{at + 1}",
            f"O{target + 1}",
            "full"
            if specification.structure == "full"
            or (specification.structure == "general" and random.random() < 0.5)
            else fitting(slots[at], slots[target]),
        )
        for at, target in enumerate(targets)
    )
    return Topology(tuple(nodes), links)


def fitting(senders: int, receivers: int) -> Partitioning:
    """The partitioning that is not full, between these numbers of slots.

    Example:
        >>> fitting(4, 2), fitting(2, 2), fitting(2, 4)
        ('merge', 'one-to-one', 'split')
    """
    if senders == receivers:
        return "one-to-one"
    return "merge" if senders > receivers else "split"
