"""The simulated cluster: sources, channels, slots, store and faults on one clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tether.core.windows import Sliding
from tether.simulate.clock import Clock
from tether.simulate.item_slot import ItemSlot
from tether.simulate.items import AMOUNT, KEY, mark, outputs
from tether.simulate.judged import outside
from tether.simulate.outbox import Outbox
from tether.simulate.store import ItemStore
from tether.simulate.toll_book import TollBook

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.simulate.faults import Fault, Outcome
    from tether.simulate.items import Message
    from tether.simulate.scenario import Scenario
    from tether.simulate.store import SlotLog
    from tether.state.segment import Array


class World:
    """Everything of one simulation.

    Sources feed the first operator's slots and never fail; what the last operator sends goes to
    sinks that never fail. Both keep to the protocol of items.

    Args:
        scenario: What to simulate.
        faults: What goes wrong; more can be added while it runs.
        slot_type: How slots behave; tests break them on purpose.

    Example:
        >>> from tether.policies.approximate import Approximate
        >>> from tether.simulate.scenario import Scenario
        >>> world = World(Scenario(copies=2, policy=Approximate(100)), [])
        >>> world.run()
        >>> world.state_error(0), world.book.violations
        (0.0, [])
    """

    def __init__(
        self, scenario: Scenario, faults: Iterable[Fault], slot_type: type[ItemSlot] = ItemSlot
    ) -> None:
        self.scenario, timing = scenario, scenario.timing
        self.clock = Clock()
        self.book = TollBook(scenario)
        self.store = ItemStore(
            scenario.slots,
            latency=timing.store_latency,
            bandwidth=timing.store_bandwidth,
            servers=timing.store_servers,
        )
        self.newest = 0.0
        """Newest time of the stream that the sources have given out."""
        self.torn = 0
        """Torn records that recoveries cut off."""
        self.struck = 0
        """Faults that struck so far."""
        self.slots = [slot_type(self, number) for number in range(scenario.slots)]
        self.sources = [Outbox(self.deliver, copy) for copy in range(scenario.copies)]
        self.ideal = np.zeros((scenario.operators, scenario.copies, scenario.keys), np.int64)
        """What every state would be without failures (in the window so far, if there is one)."""
        self.answers: dict[tuple[int, float], Array] = {}
        """By slot and end of a window: the sums that were given out."""
        self.ideal_answers: dict[float, Array] = {}
        self.given: list[Array] = []
        """All items that the sources gave out, for the judge."""
        self.ends_before: list[int] = []
        """How many windows had ended before each of them."""
        self.ideal_outputs = 0
        self.outputs = 0
        self._heard: dict[tuple[int, str], int] = {}
        for source in self.sources:
            source.limit(4.0 * scenario.batch)
        self._dice = np.random.default_rng([scenario.seed, 1])
        self._ended = 0
        self.clock.at(0.0, self._emit, 0)
        for fault in faults:
            self.clock.at(fault.time, self.strike, fault)

    def run(self) -> None:
        """Run to the end of the stream, and check the promises on the answer."""
        self.clock.run()
        self.check_end()

    # ---- sources and sinks ---------------------------------------------------------------------

    def _emit(self, number: int) -> None:
        """All sources send one more message of random items."""
        scenario, copies = self.scenario, self.scenario.copies
        shape = (copies, scenario.batch)
        keys = self._dice.integers(0, scenario.keys, shape)
        amounts = self._dice.integers(-scenario.alpha, scenario.alpha + 1, shape)
        if scenario.worst_items:
            amounts[:] = scenario.alpha
        items = np.stack([keys, amounts], axis=1)
        self._add_ideal(items)
        first = number * scenario.batch + 1
        for copy, source in enumerate(self.sources):
            source.offer(f"source {copy}", first, items[copy])
        if number + 1 < scenario.rounds:
            self.clock.at(self.clock.now + scenario.timing.interval, self._emit, number + 1)
        self._end_windows()

    def inject(self, copy: int, items: Array) -> None:
        """Let one source give out some items now; for tests that choose their own stream."""
        source = self.sources[copy]
        everywhere = np.zeros((self.scenario.copies, 2, items.shape[1]), np.int64)
        everywhere[copy] = items
        self._add_ideal(everywhere, only=1)
        source.offer(f"extra {copy}", self._injected(copy, items.shape[1]), items)

    def _injected(self, copy: int, size: int) -> int:
        first = self._heard.get((-1, f"extra {copy}"), 0) + 1
        self._heard[-1, f"extra {copy}"] = first + size - 1
        return first

    def _add_ideal(self, items: Array, only: int | None = None) -> None:
        """Send items through a pipeline that never fails."""
        scenario = self.scenario
        self.given.append(items)
        self.ends_before.append(self._ended)
        copies = np.arange(scenario.copies)[:, None]
        for operator in range(scenario.operators):
            np.add.at(self.ideal[operator], (copies, items[:, KEY]), items[:, AMOUNT])
            flat = outputs(np.concatenate(list(items), axis=1), scenario.keys, scenario.fan_out)
            items = np.stack(np.split(flat, scenario.copies, axis=1))
        self.ideal_outputs += items.shape[2] * (only or scenario.copies)

    def _end_windows(self) -> None:
        """Send the ends of windows that are complete by now."""
        before, self.newest = self.newest, self.clock.now
        window = self.scenario.policy.window
        if window is None:
            return
        for end in window.ends(after=before, upto=self.newest):
            self._ended += 1
            self.ideal_answers[end] = self.ideal.copy()
            self.ideal[:] = 0
            for copy, source in enumerate(self.sources):
                source.offer(f"source {copy}/marks", self._ended, mark(), end)

    # ---- channels ------------------------------------------------------------------------------

    def deliver(self, sender: Outbox, message: Message) -> None:
        """Put a message on the line to the sender's receiver."""
        slot = None if sender.receiver is None else self.slots[sender.receiver]
        if slot is not None and not slot.up:
            return  # the receiver is lost; once it is back, the message is sent again
        life = 0 if slot is None else slot.life
        then = self.clock.now + self.scenario.timing.channel
        self.clock.at(then, self._arrive, sender, message, life)

    def _arrive(self, sender: Outbox, message: Message, life: int) -> None:
        # A message in flight is lost when either end dies. Channels keep the order: a message from
        # before a loss must not arrive after those that are sent again, because the receiver would then
        # take these for known ones.
        if sender.broken:
            return
        if sender.receiver is not None:
            slot = self.slots[sender.receiver]
            if slot.life == life:
                slot.arrive(sender, message)
            return
        if message.window_end is None:
            self._sink(message)
        self.acknowledge(sender, message)

    def _sink(self, message: Message) -> None:
        known = self._heard.get((0, message.name), 0)
        newest = message.first + int(message.items.shape[1]) - 1
        if newest > known:
            self.outputs += newest - max(known, message.first - 1)
            self._heard[0, message.name] = newest

    def acknowledge(self, sender: Outbox, message: Message) -> None:
        """Tell a sender that a message has come."""
        then = self.clock.now + self.scenario.timing.channel
        self.clock.at(then, self._acknowledged, sender, message.upto)

    def _acknowledged(self, sender: Outbox, upto: int) -> None:
        if not sender.broken:
            sender.acknowledge(upto)

    # ---- faults --------------------------------------------------------------------------------

    def log(self, slot: ItemSlot) -> SlotLog:
        """All that is durable of a slot."""
        return self.store.logs[slot.number]

    def count_torn(self, records: int) -> None:
        """A recovery has cut these torn records off."""
        self.torn += records

    def strike(self, fault: Fault) -> None:
        """Let a fault happen now."""
        self.struck += 1
        slot = self.slots[fault.target]
        if fault.kind == "outage":
            self.store.outage(self.clock.now + self.scenario.timing.outage)
        elif fault.kind in ("torn-write", "during-backup"):
            slot.arm("write", fault.outcome, fault.moment)
        elif fault.kind == "during-recovery":
            slot.arm("recovery", fault.outcome, fault.moment)
            slot.die(fault.outcome)
        else:
            for neighbour in self._together(fault):
                self.slots[neighbour].die(fault.outcome)

    def _together(self, fault: Fault) -> range:
        size = 1
        if fault.kind != "slot":
            size = self.scenario.slots_per_node
        if fault.kind == "rack":
            size *= self.scenario.nodes_per_rack
        start = fault.target // size * size
        return range(start, min(start + size, self.scenario.slots))

    def kill(self, slot: ItemSlot, life: int, outcome: Outcome) -> None:
        """Let a slot die, unless that life has already ended."""
        if slot.life == life:
            slot.die(outcome)

    def back(self, slot: ItemSlot) -> None:
        """A slot has recovered: its senders send again what was not acknowledged."""
        if slot.operator == 0:
            self.sources[slot.copy].resend()
        else:
            before = self.slots[slot.number - self.scenario.copies]
            if before.up:
                before.outbox.resend()

    def committed(self, slot: ItemSlot) -> None:
        """A slot has committed an epoch: within θ."""
        divergence = slot.sums.state.divergence()
        if divergence > slot.limits.theta:
            divergence = slot.sums.state.divergence(exact=True)
        self.book.check(f"divergence of slot {slot.number}", divergence, slot.limits.theta)

    def answered(self, slot: ItemSlot, answers: dict[float, Array]) -> None:
        """Note answers of windows; the first answer counts, as later ones are made after a loss."""
        for end, answer in answers.items():
            self.answers.setdefault((slot.number, end), answer)

    # ---- promises ------------------------------------------------------------------------------

    def state_error(self, operator: int) -> float:
        """Current error of an operator's states, all copies together."""
        first = operator * self.scenario.copies
        slots = self.slots[first : first + self.scenario.copies]
        ideal = self.ideal[operator]
        return sum(s.sums.distance(s.sums.values(), ideal[s.copy]) for s in slots)

    def check_end(self) -> None:
        """Compare the answer with that of a run without failures."""
        scenario, check = self.scenario, self.book.check
        idle = all(s.up and s.outbox.idle for s in self.slots)
        if not (idle and all(source.idle for source in self.sources)):
            self.book.violations.append("the stream did not come to its end")
        window = scenario.policy.window
        if isinstance(window, Sliding):
            # The states hold all of the stream, so the promise is about what each window lost.
            self.book.check_sliding(window)
            return
        for operator in range(scenario.operators):
            error = self.state_error(operator)
            check(f"state error of operator {operator}", error, scenario.most_state_error)
        if window is None:
            missing = self.ideal_outputs - self.outputs
            check("lost outputs", missing, scenario.most_lost_outputs)
            check("outputs given twice", -missing, 0)
        for end, ideal in self.ideal_answers.items():
            self._check_window(end, ideal)
        if idle:
            self.book.violations.extend(outside(self))

    def _check_window(self, end: float, ideal: Array) -> None:
        for operator in range(self.scenario.operators):
            first = operator * self.scenario.copies
            error = 0.0
            for slot in self.slots[first : first + self.scenario.copies]:
                answer = self.answers.get((slot.number, end))
                if answer is None:
                    self.book.violations.append(f"window {end:g} of slot {slot.number} is lost")
                else:
                    error += slot.sums.distance(answer, ideal[operator, slot.copy])
            what = f"error of operator {operator} in the window that ends at {end:g}"
            self.book.check(what, error, self.scenario.most_state_error)
