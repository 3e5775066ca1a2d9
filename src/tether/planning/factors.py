"""A metric as a product: parts of a topology whose copies can be planned apart from each other.

All receivers of a full link get the same mix of its senders. So where every tree goes through such a
link, and nothing else leads past it, the metric is the value of what lies before the link times the
value of the rest. The best plan is then one of the best plans of the factors, and all that is to be
decided is how many copies each gets. This is not in the paper; it is what makes the optimum of
topologies with 10²⁰ trees known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tether.planning.model import Model, Part


@dataclass(frozen=True)
class Factor:
    """A part of a model, and to which power its value is a factor of the whole value."""

    model: Model
    power: int


def factors(model: Model) -> tuple[Factor, ...]:
    """Split a model into factors; itself alone, if it has no others.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> from tether.planning.model import model_of
        >>> nodes = tuple(Node(name, 2, rates=1.0) for name in "abc")
        >>> topology = Topology(nodes, (Link("a", "b", "one-to-one"), Link("b", "c")))
        >>> for factor in factors(model_of(topology)):
        ...     print(*(part.name for part in factor.model.parts))
        a b
        c
    """
    return tuple(_split(model, 1))


def _split(model: Model, power: int) -> list[Factor]:
    for part in model.parts:
        for stream in part.streams:
            if not stream.full or (len(part.streams) > 1 and not part.correlated):
                continue
            if part.outside.any():
                continue
            sender = model.part(stream.link.source)
            before = _cone(model, sender)
            times = _times(model, part)
            if times and _leads_only_to(model, before, part):
                mix = {sender.name: stream.mix}
                worth = {
                    end.name: model.worth[end.slots]
                    for end in model.parts
                    if model.ends[end.slots.start]
                }
                rest = {other.name for other in model.parts} - before
                return [
                    *_split(model.within(before, mix), power * times),
                    *_split(model.within(rest, worth), power),
                ]
    return [Factor(model, power)]


def _cone(model: Model, part: Part) -> set[str]:
    """An operator and all before it."""
    found = {part.name}
    for other in reversed(model.parts):
        if other.name in found:
            found |= {stream.link.source for stream in other.streams}
    return found


def _leads_only_to(model: Model, before: set[str], part: Part) -> bool:
    """Whether what these operators make goes nowhere but over one link to one operator."""
    ends = any(model.ends[one.slots.start] for one in model.parts if one.name in before)
    ways = [
        other.name
        for other in model.parts
        if other.name not in before
        for stream in other.streams
        if stream.link.source in before
    ]
    return not ends and ways == [part.name]


def _times(model: Model, part: Part) -> int:
    """How often every tree goes through an operator; 0 if not all trees do, or not equally often."""
    found: dict[str, set[int]] = {}
    for other in model.parts:
        through = [found[stream.link.source] for stream in other.streams]
        if other.name == part.name:
            found[other.name] = {1}
        elif not through:
            found[other.name] = {0}
        elif other.correlated:
            sums = {0}
            for numbers in through:
                sums = {one + more for one in sums for more in numbers}
            found[other.name] = sums
        else:
            found[other.name] = set().union(*through) | ({0} if other.outside.any() else set())
    ends = [found[end.name] for end in model.parts if model.ends[end.slots.start]]
    numbers = set().union(*ends)
    return numbers.pop() if len(numbers) == 1 else 0
