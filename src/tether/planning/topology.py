"""What a planner sees of a query: operators, their slots, who sends to whom, and how much.

PPA 2016 §II-A. The paper's task is our slot; its four partitionings say which slots of one operator
send to which slots of the next.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.core.graph import SlotId
from tether.core.ids import Slot

Partitioning = Literal["one-to-one", "split", "merge", "full"]
"""How the slots of two operators are connected (PPA 2016 §II-A).

one-to-one: slot i sends to slot i. split: each slot sends to a block of slots of its own. merge: each
slot sends to one slot, which takes in a block of them. full: every slot sends to every slot, as a
shuffle does.
"""

Inputs = Literal["independent", "correlated"]
"""Whether an operator works on the union of its input streams, or joins them (PPA 2016 §III-A)."""


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator of a topology.

    Args:
        name: Its name.
        slots: Number of its slots.
        inputs: "correlated" where it joins its input streams: without one of them the others are
            worth nothing. "independent" where it takes them in one by one.
        rates: Rows per second that each slot sends out; one number if all send the same. What reads
            the source needs it; for others it follows from their input and ``selectivity``.
        selectivity: Rows out per row in; of a correlated operator, per combination of one row of
            each stream. Used where there are no rates.
        numbers: The slots' own numbers, in the order that links and rates go by; by default 0, 1, 2….
            A split or merge connects blocks of slots. Where others belong together, as slots of equal
            remainder do in a query of ours, another order makes blocks of them.

    Example:
        >>> Node("parse", 2, rates=(300.0, 100.0)).slots
        2
    """

    name: str
    slots: int = 1
    inputs: Inputs = "independent"
    rates: tuple[float, ...] | float | None = None
    selectivity: float = 1.0
    numbers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise BadValueError("An operator has no name.", do="Give every operator a name.")
        count(f"slots of {self.name!r}", self.slots, unit="slots")
        one_of(f"inputs of {self.name!r}", self.inputs, ("independent", "correlated"))
        amounts(f"rates of {self.name!r}", self.rates, self.slots, "rows per second")
        amount(
            f"selectivity of {self.name!r}",
            self.selectivity,
            unit="rows out per row in",
            zero="it sends nothing",
            infinite=None,
        )
        if self.numbers is not None and sorted(self.numbers) != list(range(self.slots)):
            raise BadValueError(
                f"numbers of {self.name!r}: {list(self.numbers)} are not its slots.",
                why=f"It has {self.slots} slots, from 0 on, each of which comes once.",
                do="Name every slot once, or leave the numbers out.",
            )

    @property
    def in_order(self) -> tuple[int, ...]:
        """The slots' numbers, in the order that links and rates go by."""
        return tuple(range(self.slots)) if self.numbers is None else self.numbers


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operator ``source`` sends its output to operator ``target``.

    Args:
        source: Name of the sender.
        target: Name of the receiver.
        partitioning: Which slots send to which.
        shares: How the rows are spread over the slots of the receiver, in any unit; evenly by
            default. A slot's rows are split by the shares of those slots that it sends to.

    Example:
        >>> Link("parse", "count").partitioning
        'full'
    """

    source: str
    target: str
    partitioning: Partitioning = "full"
    shares: tuple[float, ...] | None = None


class Topology(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"nodes": "operators"}
):
    """Operators and links, checked.

    Operators without input read the source. The answer is what comes out of the operators in
    ``outputs``; by default those that send to no other.

    Args:
        nodes: The operators.
        links: Who sends to whom. Without cycles.
        outputs: Names of the operators whose output is the answer.

    Example:
        >>> topology = Topology(
        ...     (Node("parse", 4, rates=100.0), Node("count", 2)),
        ...     (Link("parse", "count", "merge"),),
        ... )
        >>> topology.sources, topology.sinks, len(topology.slots)
        (('parse',), ('count',), 6)
    """

    nodes: tuple[Node, ...]
    links: tuple[Link, ...] = ()
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes:
            raise BadValueError(
                "The topology has no operators.",
                why="There is nothing that could have a copy.",
                do="Give at least one operator.",
            )
        names = [node.name for node in self.nodes]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BadValueError(
                f"Several operators are named {twice}.", do="Give every operator a name of its own."
            )
        for link in self.links:
            self._check_link(link)
        self._check_order()
        unknown = sorted(set(self.outputs) - set(names))
        if unknown:
            raise BadValueError(
                f"outputs names {unknown}.",
                why=f"The operators are {names}.",
                do="Name operators of the topology.",
            )

    def _check_link(self, link: Link) -> None:
        told = f"the link from {link.source!r} to {link.target!r}"
        unknown = sorted({link.source, link.target} - {node.name for node in self.nodes})
        if unknown:
            raise BadValueError(
                f"A link names {unknown}.",
                why=f"The operators are {[node.name for node in self.nodes]}.",
                do="Connect operators of the topology.",
            )
        ends = [(other.source, other.target) for other in self.links]
        if ends.count((link.source, link.target)) > 1:
            raise BadValueError(
                f"{link.source!r} sends to {link.target!r} twice.",
                why="What one operator sends to another is one stream.",
                do="Leave one of the two links out.",
            )
        one_of(
            f"partitioning of {told}",
            link.partitioning,
            ("one-to-one", "split", "merge", "full"),
        )
        senders, receivers = self.node(link.source).slots, self.node(link.target).slots
        fits = {
            "one-to-one": senders == receivers,
            "split": senders < receivers,
            "merge": senders > receivers,
            "full": True,
        }
        if not fits[link.partitioning]:
            needs = {"one-to-one": "as many", "split": "more", "merge": "fewer"}
            raise BadValueError(
                f"{link.source!r} cannot send to {link.target!r} by {link.partitioning}.",
                why=f"It has {senders} slots, the other {receivers}; {link.partitioning} needs "
                f"{needs[link.partitioning]} at the receiver.",
                do="Change the number of slots, or the partitioning; full always fits.",
            )
        amounts(f"shares of {told}", link.shares, receivers, "any unit")

    def _check_order(self) -> None:
        stuck = [node.name for node in self.nodes if node.name not in self.in_order()]
        if not stuck:
            return
        cycle = self._cycle(stuck)
        sinks = {node.name for node in self.nodes} - {link.source for link in self.links}
        raise BadValueError(
            f"The operators send to each other in a cycle: {' -> '.join(cycle)}."
            + ("" if sinks else " No operator is left to be the sink."),
            why="What a slot is worth is worked out from the source to the output.",
            do="Leave feedback out: only what leads from the source to the output counts.",
        )

    def _cycle(self, stuck: list[str]) -> list[str]:
        """Operators of a cycle, the first one again at the end."""
        path = [stuck[0]]
        while path.count(path[-1]) < 2:
            # A stuck slot waits for another stuck one, so walking back along links never ends.
            path.append(next(x.source for x in self.inputs_of(path[-1]) if x.source in stuck))
        return path[path.index(path[-1]) :][::-1]

    def node(self, name: str) -> Node:
        """The operator of that name."""
        return next(node for node in self.nodes if node.name == name)

    def inputs_of(self, name: str) -> tuple[Link, ...]:
        """Links into an operator: one for each of its input streams."""
        return tuple(link for link in self.links if link.target == name)

    def outputs_of(self, name: str) -> tuple[Link, ...]:
        """Links out of an operator."""
        return tuple(link for link in self.links if link.source == name)

    def in_order(self) -> tuple[str, ...]:
        """Operators so that each comes after all that send to it."""
        order: list[str] = []
        waiting = [node.name for node in self.nodes]
        while waiting:
            ready = [
                name
                for name in waiting
                if all(link.source in order for link in self.inputs_of(name))
            ]
            if not ready:
                break
            order += ready
            waiting = [name for name in waiting if name not in ready]
        return tuple(order)

    def is_full(self, link: Link) -> bool:
        """Whether every slot of the sender sends to every slot of the receiver.

        So it is with a link of any name where one of the two has a single slot: the paper's splits
        and merges reach some slots, not all (PPA 2016 §II-A).
        """
        one = 1 in (self.node(link.source).slots, self.node(link.target).slots)
        return one or link.partitioning == "full"

    @property
    def slots(self) -> tuple[SlotId, ...]:
        """All slots of all operators, in the order of ``nodes``."""
        return tuple(SlotId(node.name, Slot(slot)) for node in self.nodes for slot in node.in_order)

    @property
    def sources(self) -> tuple[str, ...]:
        """Operators that read the source."""
        fed = {link.target for link in self.links}
        return tuple(node.name for node in self.nodes if node.name not in fed)

    @property
    def sinks(self) -> tuple[str, ...]:
        """Operators whose output is the answer."""
        if self.outputs:
            return tuple(node.name for node in self.nodes if node.name in self.outputs)
        sending = {link.source for link in self.links}
        return tuple(node.name for node in self.nodes if node.name not in sending)


def one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a word that is not known.

    Raises:
        BadValueError: Says which are.
    """
    if value not in known:
        raise BadValueError(f"{name}: {value!r} is not known.", do=f"Use one of {list(known)}.")


def amounts(name: str, values: tuple[float, ...] | float | None, slots: int, unit: str) -> None:
    """Refuse numbers that are not one usable amount for each slot.

    Raises:
        BadValueError: One is negative, infinite or not a number, or there are not enough of them.
    """
    if values is None:
        return
    each = values if isinstance(values, tuple) else (values,)
    for value in each:
        amount(name, value, unit=unit, zero="an idle slot", infinite=None)
    if isinstance(values, tuple) and len(values) != slots:
        raise BadValueError(
            f"{name}: there are {len(values)} numbers for {slots} slots.",
            why="Each slot has one.",
            do="Give one number for each slot.",
        )
