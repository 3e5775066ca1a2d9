"""A topology made ready for arithmetic: what each slot's output is worth when others are lost.

Write s for 1 - IL, the part of a slot's output that is still made. The loss model of PPA 2016 §III-A
is then a recursion from the source to the output:

    a slot that reads the source:    s = alive
    independent inputs (eq. 1, 3):   s = alive · Σ over streams of weight · Σ over substreams of mix · s
    correlated inputs (eq. 1, 2):    s = alive · Π over streams of          Σ over substreams of mix · s

and a metric is Σ worth · s over all slots. Output fidelity (eq. 4) gives worth to the slots of the
sink, by their rates. Internal completeness gives it to every slot, by what it takes in, and takes all
inputs for independent. Planners work on the model, so they serve both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tether.core.errors import BadValueError
from tether.planning.streams import normal, stream_of
from tether.planning.wiring import input_rates, output_rates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tether.core.graph import SlotId
    from tether.planning.streams import Flags, Stream
    from tether.planning.topology import Topology
    from tether.planning.wiring import Floats, Ints

Metric = Literal["fidelity", "completeness"]
"""What a plan is to make large: output fidelity, or internal completeness for comparison."""


@dataclass(frozen=True, eq=False)
class Part:
    """An operator within a model."""

    name: str
    slots: slice
    correlated: bool
    streams: tuple[Stream, ...]
    outside: Floats
    """Part of each slot's input that comes from outside the model, and is never lost; 0 if it joins."""

    @property
    def numbers(self) -> range:
        """The numbers of its slots."""
        return range(self.slots.start, self.slots.stop)

    def received(self, survival: Floats) -> Floats | float:
        """Part of its whole input that each slot still gets."""
        found = [stream.received(survival) for stream in self.streams]
        if not found:
            return 1.0
        if self.correlated:
            return _product(found)
        if len(found) == 1 and not self.outside.any():
            return found[0]
        total = self.outside[:, None]
        for stream, one in zip(self.streams, found, strict=True):
            total = total + stream.weight[:, None] * one
        return total

    def passed_on(self, worth: Floats, survival: Floats) -> list[Floats]:
        """What the streams are worth to each slot, given what its whole input is worth."""
        if self.correlated:
            found = [stream.received(survival) for stream in self.streams]
            return [
                worth * _product(found[:at] + found[at + 1 :]) for at in range(len(self.streams))
            ]
        return [worth * stream.weight[:, None] for stream in self.streams]


@dataclass(frozen=True, eq=False)
class Model:
    """The recursion of a topology, for any number of sets of living slots at once.

    Sets of slots are flags: a row for each slot, and a column for each set.
    """

    slots: tuple[SlotId, ...]
    parts: tuple[Part, ...]
    """Operators, each after all that send to it."""
    rates: Floats
    """Rows per second out of each slot."""
    worth: Floats
    """What each slot's whole output adds to the value; 1 in all."""
    ends: Flags
    """Slots whose output has worth, though it may be 0 for an idle one."""
    origin: Ints
    """Numbers of the slots in the model of the whole topology."""

    @property
    def size(self) -> int:
        """Number of slots."""
        return len(self.slots)

    def part(self, name: str) -> Part:
        """The operator of that name."""
        return next(part for part in self.parts if part.name == name)

    @property
    def none(self) -> Flags:
        """The empty set of slots."""
        return np.zeros(self.size, bool)

    def mask(self, slots: Iterable[tuple[str, int]]) -> Flags:
        """A set of slots as one flag for each slot.

        Raises:
            BadValueError: A slot is not in the topology.
        """
        numbers = {tuple(slot): number for number, slot in enumerate(self.slots)}
        flags = self.none
        for slot in slots:
            if tuple(slot) not in numbers:
                has = ", ".join(f"{part.name!r} ({len(part.numbers)})" for part in self.parts)
                raise BadValueError(
                    f"There is no slot {tuple(slot)}.",
                    why=f"The operators and their numbers of slots are {has}.",
                    do="Name an operator and the number of a slot, from 0 on.",
                )
            flags[numbers[tuple(slot)]] = True
        return flags

    def named(self, flags: Flags) -> tuple[SlotId, ...]:
        """The slots of a set."""
        return tuple(self.slots[number] for number in np.flatnonzero(flags))

    def survival(self, alive: Flags) -> Floats:
        """1 - IL of every slot's output: the part that is still made."""
        survival = np.empty(alive.shape)
        for part in self.parts:
            survival[part.slots] = alive[part.slots] * part.received(survival)
        return survival

    def values(self, alive: Flags) -> Floats:
        """The metric of several sets of living slots."""
        return self.value_of(self.survival(alive))

    def value_of(self, survival: Floats) -> Floats:
        """The metric, given the survival."""
        result: Floats = np.clip(self.worth @ survival, 0.0, 1.0)
        return result

    def value(self, alive: Flags) -> float:
        """The metric of one set of living slots."""
        return float(self.values(alive[:, None])[0])

    def useful(self, survival: Floats) -> Flags:
        """Which living slots add to the value: those that are fed, and whose output arrives."""
        fed = survival > 0
        arrives = np.repeat(self.ends[:, None], survival.shape[1], axis=1)
        for part in reversed(self.parts):
            arrives[part.slots] &= fed[part.slots]
            for stream in part.streams:
                arrives[stream.sending] |= stream.any_receiver(arrives)
        return arrives

    def gains(self, alive: Flags, survival: Floats) -> Floats:
        """What each slot's life adds to the value, the others as they are: the value's derivative.

        Exact, except where an operator joins streams that go back to one slot: there it is that
        slot's first-order effect.

        Args:
            alive: Sets of living slots.
            survival: Their survival.
        """
        worth = np.repeat(self.worth[:, None], survival.shape[1], axis=1)
        gains = np.empty(survival.shape)
        for part in reversed(self.parts):
            gains[part.slots] = worth[part.slots] * part.received(survival)
            input_worth = worth[part.slots] * alive[part.slots]
            each = part.passed_on(input_worth, survival)
            for stream, of_stream in zip(part.streams, each, strict=True):
                worth[stream.sending] += stream.sent(of_stream)
        return gains

    def within(self, operators: Collection[str], worth: Mapping[str, Floats]) -> Model:
        """The model of some operators alone; what comes to them from others is never lost.

        Args:
            operators: Which.
            worth: What the output of some of them is worth, slot by slot, in any unit.
        """
        parts = [part for part in self.parts if part.name in operators]
        origin = np.concatenate([np.array(part.numbers) for part in parts])
        numbers = np.full(self.size, -1)
        numbers[origin] = np.arange(len(origin))
        kept = tuple(_kept(part, operators, numbers) for part in parts)
        amounts, ends = np.zeros(len(origin)), np.zeros(len(origin), bool)
        for part in kept:
            if part.name in worth:
                amounts[part.slots], ends[part.slots] = worth[part.name], True
        amounts[ends] = normal(amounts[ends])
        slots = tuple(self.slots[number] for number in origin)
        return Model(slots, kept, self.rates[origin], amounts, ends, self.origin[origin])


def model_of(topology: Topology, metric: Metric = "fidelity") -> Model:
    """The model of a topology.

    Args:
        topology: What to model.
        metric: What its value means.

    Raises:
        BadValueError: Rates are missing.

    Example:
        >>> from tether.planning import Link, Node, Topology
        >>> topology = Topology((Node("a", 2, rates=(3.0, 1.0)), Node("b")), (Link("a", "b"),))
        >>> model = model_of(topology)
        >>> model.value(model.mask([("a", 0), ("b", 0)]))
        0.75
    """
    slots, rates = topology.slots, output_rates(topology)
    starts = {slot.operator: number for number, slot in reversed(list(enumerate(slots)))}
    parts, amounts, ends = [], np.zeros(len(slots)), np.zeros(len(slots), bool)
    for name in topology.in_order():
        node, links = topology.node(name), topology.inputs_of(name)
        into = np.array([input_rates(topology, link, rates[link.source]) for link in links])
        weights = normal(into) if links else into
        streams = tuple(
            stream_of(topology, link, starts, rates[link.source], weight)
            for link, weight in zip(links, weights, strict=True)
        )
        place = slice(starts[name], starts[name] + node.slots)
        joins = node.inputs == "correlated" and metric == "fidelity" and len(links) > 1
        parts.append(Part(name, place, joins, streams, np.zeros(node.slots)))
        taken = metric == "completeness" and bool(links)
        amounts[place] = into.sum(axis=0) if taken else rates[name]
        ends[place] = metric == "completeness" or name in topology.sinks
    worth = np.zeros(len(slots))
    worth[ends] = normal(amounts[ends])
    out = np.concatenate([rates[node.name] for node in topology.nodes])
    return Model(slots, tuple(parts), out, worth, ends, np.arange(len(slots)))


def _kept(part: Part, operators: Collection[str], numbers: Ints) -> Part:
    """An operator without the streams that come from outside."""
    inside = [stream for stream in part.streams if stream.link.source in operators]
    lost = [] if part.correlated else [s.weight for s in part.streams if s not in inside]
    outside = np.sum([part.outside, *lost], axis=0)
    start = int(numbers[part.slots.start])
    return Part(
        part.name,
        slice(start, start + len(part.numbers)),
        part.correlated and bool(inside),
        tuple(stream.renumbered(numbers) for stream in inside),
        outside,
    )


def _product(found: list[Floats]) -> Floats | float:
    result: Floats | float = 1.0
    for one in found:
        result = result * one
    return result
