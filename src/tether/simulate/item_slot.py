"""One slot's life: takes items in, processes them, backs up what the policy asks for.

A slot does one thing at a time, and what it has begun counts only when it is finished. A chunk of
items is applied to the real state within an epoch of it; then its outputs must be accepted by the
sender's side; then whatever the policy asks for must be durable; only then the epoch is committed
and the items count as processed. So a death at any moment leaves the end of a chunk: the live state
within θ of the backups, at most l items neither processed nor backed up, at most γ outputs
unacknowledged (AF-Stream 2019 §3.5.1).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.core.ids import Epoch
from tether.engine.slot.interpreter import unknown_instruction
from tether.policies.events import EpochApplied, WindowEnd
from tether.policies.instructions import BackUpState, RecordFailures
from tether.protocols.items import (
    Acknowledge,
    BackUpItems,
    BackUpPunctuation,
    DropItems,
    ItemsArrived,
    ProcessItems,
    PunctuationArrived,
    ReadyToProcess,
    ReceiverState,
    StateSaved,
    TakeItems,
    receive,
)
from tether.simulate.item_recovery import Fallen, recover
from tether.simulate.items import Run, count, cut, outputs
from tether.simulate.outbox import Outbox
from tether.simulate.store import Record
from tether.simulate.sums import Sums, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.backup.frames import Frame
    from tether.core.thresholds import Thresholds
    from tether.policies.window_effects import WindowedState
    from tether.simulate.clock import Doing
    from tether.simulate.faults import Outcome
    from tether.simulate.items import Message
    from tether.simulate.world import World
    from tether.state.segment import Array

COMPACT_RATIO = 2.0
"""A full frame is written when the frames since the last full one hold this many times its bytes."""
COMPACT_FLOOR_BYTES = 4096
"""Logs below twice this are not worth compacting."""


class Step(NamedTuple):
    """A chunk that was applied, and what its commit will make true."""

    epoch: int
    receiver: ReceiverState
    policy_state: WindowedState
    backup: BackUpState | None
    control: bool
    """Whether something besides state must be durable first: drops, or the number of failures."""


class ItemSlot:
    """One copy of one operator.

    Args:
        world: Everything around it.
        number: Of all slots, operator by operator.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        scenario = world.scenario
        self.operator, self.copy = divmod(number, scenario.copies)
        self.placement = scenario.placement(self.operator)
        self.life = 0
        self.epoch = 0
        self.receiver = ReceiverState()
        self.runs: deque[Run] = deque()
        self.inbox: deque[tuple[Outbox, Message]] = deque()
        self.sums = self.new_state()
        self.outbox = self._new_outbox()
        self.fallen: Fallen | None = None
        self._armed: tuple[str, Outcome, float] | None = None
        self.seconds = {"work": 0.0, "backup": 0.0, "acks": 0.0, "down": 0.0}
        self._writing: Record | None = None
        self.remember(world.scenario.policy.initial())
        self._doing = self._live()
        self._parked = True

    def new_state(self) -> Sums:
        """An empty state of the scenario's kind."""
        scenario = self.world.scenario
        return Sums(scenario.keys, scenario.kind, scenario.norm)

    def _new_outbox(self) -> Outbox:
        after = self.number + self.world.scenario.copies
        receiver = after if after < self.world.scenario.slots else None
        return Outbox(self.world.deliver, receiver, self.wake)

    def remember(self, policy_state: WindowedState) -> None:
        """Go on with this state of the policy, and its thresholds."""
        self.policy_state = policy_state
        self.limits: Thresholds = self.world.scenario.policy.thresholds(
            policy_state, self.placement
        )
        self.outbox.limit(self.limits.gamma)

    @property
    def up(self) -> bool:
        """Whether it is there: neither lost nor recovering."""
        return self.fallen is None

    # ---- being driven --------------------------------------------------------------------------

    def wake(self) -> None:
        """Continue, if it waits for something other than a time."""
        if self._parked:
            self._resume(self.life)

    def _resume(self, life: int) -> None:
        if life != self.life:
            return  # meant for a life of the slot that has ended since
        self._parked = False
        until = next(self._doing)
        if until is None:
            self._parked = True
        else:
            self.world.clock.at(until, self._resume, self.life)

    def arrive(self, sender: Outbox, message: Message) -> None:
        """Receive a message; while the slot is lost, it is dropped."""
        if self.up:
            self.inbox.append((sender, message))
            self.wake()

    def die(self, outcome: Outcome) -> None:
        """Lose everything in memory; then recover."""
        now = self.world.clock.now
        if self.fallen is None:
            self.fallen = self._fall(now)
        if self._writing is not None:
            self.world.log(self).leave(self._writing, outcome)
            self._writing = None
        self._doing.close()
        self.life += 1
        self.inbox.clear()
        self.outbox.break_off()
        self.outbox = self._new_outbox()
        self._doing = self._rise()
        self._resume(self.life)

    def arm(self, when: str, outcome: Outcome, moment: float) -> None:
        """Die during the next "write", or that of a "recovery", at a moment of it from 0 to 1."""
        self._armed = (when, outcome, moment)

    def disarm(self) -> None:
        """Do not die during a write."""
        self._armed = None

    @property
    def armed(self) -> bool:
        """Whether it is to die during a write that has not begun yet."""
        return self._armed is not None

    def restore(self, frames: Sequence[Frame]) -> None:
        """Start again from backups."""
        self.sums = self.new_state()
        self.sums.restore(frames, self.epoch - 1)

    def back(self, receiver: ReceiverState, runs: deque[Run], policy_state: WindowedState) -> None:
        """Be there again, with these items to process first."""
        if self.fallen is not None:
            self.seconds["down"] += self.world.clock.now - self.fallen.time
        self.receiver, self.runs, self.fallen = receiver, runs, None
        self.epoch += 1
        self.remember(policy_state)

    def _fall(self, now: float) -> Fallen:
        return Fallen(
            time=now,
            position=self.world.newest,
            life=self.life,
            live=self.sums.committed(),
            processed=self.receiver.processed,
            received=self.receiver.received,
            runs=list(self.runs),
            unacked=self.outbox.state.at_risk,
        )

    def _rise(self) -> Doing:
        yield from recover(self)
        yield from self._live()

    # ---- living --------------------------------------------------------------------------------

    def _live(self) -> Doing:
        while True:
            if self.inbox:
                yield from self._take(*self.inbox.popleft())
            elif self.receiver.processed < self.receiver.received:
                yield from self._process()
            else:
                yield None

    def write(self, record: Record) -> Doing:
        """Make a record durable, and wait for that."""
        clock = self.world.clock
        began = clock.now
        until = self.world.store.write(self.number, record, began)
        self._writing = record
        if self._armed is not None and (self._armed[0] == "write" or not self.up):
            _, outcome, moment = self._armed
            self._armed = None
            clock.at(began + moment * (until - began), self.world.kill, self, self.life, outcome)
        yield until
        self.world.log(self).append(record)
        self._writing = None
        if self.up:
            self.seconds["backup"] += until - began

    def _take(self, sender: Outbox, message: Message) -> Doing:
        """Receive: number the items, back up what is pending if it is too much, acknowledge."""
        arrived: ItemsArrived | PunctuationArrived
        if message.window_end is None:
            size = int(message.items.shape[1])
            arrived = ItemsArrived(sender=message.name, first=message.first, count=size)
        else:
            arrived = PunctuationArrived(sender=message.name, first=message.first)
        receiver, asked = receive(self.receiver, arrived, self.most_pending())
        for one in asked:
            match one:
                case TakeItems(skip=skip, first=first):
                    items = message.items[:, skip:]
                    number = message.first + skip
                    self.runs.append(Run(first, items, message.name, number, message.window_end))
                case BackUpItems(first=first, last=last):
                    runs = tuple(cut(self.runs, first, last))
                    yield from self.write(Record(receiver=receiver, runs=runs, said=(one,)))
                case BackUpPunctuation():
                    runs = (self.runs[-1],)
                    yield from self.write(Record(receiver=receiver, runs=runs, said=(one,)))
                case Acknowledge():
                    self.world.acknowledge(sender, message)
                case _:
                    raise unknown_instruction("of items", one)
        self.receiver = receiver

    def most_pending(self) -> float:
        """L now."""
        return self.limits.l

    def _process(self) -> Doing:
        """Process the next items as one epoch of the state."""
        upto = self._next_end()
        receiver, asked = receive(self.receiver, ReadyToProcess(upto=upto), self.limits.l)
        end = next(one.last for one in asked if isinstance(one, ProcessItems))
        if end < upto:  # items with and without a backup are processed separately
            receiver, asked = receive(self.receiver, ReadyToProcess(upto=end), self.limits.l)
        runs = cut(self.runs, self.receiver.processed + 1, end)
        work = count(runs) * self.world.scenario.timing.item
        yield self.world.clock.now + work
        self.seconds["work"] += work
        epoch, self.epoch = self.epoch, self.epoch + 1
        self.sums.state.begin(epoch)
        answers = self._apply(runs)
        yield from self._send(runs)
        # Together with the outputs: if it came after the record, a slot that dies in between would
        # recover with a finished window whose answer was never given.
        self.world.answered(self, answers)
        drops = any(isinstance(one, DropItems) for one in asked)
        yield from self.finish(self._decide(epoch, runs, receiver, drops))

    def _next_end(self) -> int:
        """The last number of the next chunk; punctuation is a chunk of its own."""
        first = self.receiver.processed + 1
        upto = min(self.receiver.received, self.receiver.processed + self.world.scenario.batch)
        for run in self.runs:
            if run.window_end is not None and run.last >= first:
                return max(first, min(upto, run.first - 1))
        return upto

    def _apply(self, runs: list[Run]) -> dict[float, Array]:
        """Apply items and ends of windows to the state; give the answers of those windows."""
        answers = {}
        for run in runs:
            if run.window_end is not None:
                answers[run.window_end] = self.sums.values()
                self.sums.clear()
        data = [run.items for run in runs if run.window_end is None]
        if data:
            self.sums.apply(data[0] if len(data) == 1 else np.concatenate(data, axis=1))
        return answers

    def _send(self, runs: list[Run]) -> Doing:
        """Send outputs; continue when they are accepted, and need not be produced again."""
        each, began = self.world.scenario.fan_out, self.world.clock.now
        ends = False
        for run in runs:
            if run.window_end is not None:
                self.outbox.offer(run.name, run.number, run.items, run.window_end)
                ends = True
            else:
                made = outputs(run.items, self.world.scenario.keys, each)
                self.outbox.offer(run.name, (run.number - 1) * each + 1, made)
        # Punctuation is never at risk: it is kept until the receiver has made it durable.
        while not (self.outbox.idle if ends else self.outbox.settled):
            yield None
        self.seconds["acks"] += self.world.clock.now - began

    def _decide(self, epoch: int, runs: list[Run], receiver: ReceiverState, drops: bool) -> Step:
        """Ask the policy what must be durable before the epoch may be committed."""
        policy, state = self.world.scenario.policy, self.policy_state
        asked: list[object] = []
        for run in runs:
            if run.window_end is not None:
                event = WindowEnd(epoch=Epoch(epoch), end=run.window_end)
                state, more = policy.step(state, event, self.placement)
                asked += more
        divergence = self.sums.state.divergence()
        if divergence > policy.threshold(state, self.placement):
            divergence = self.sums.state.divergence(exact=True)
        applied = EpochApplied(
            epoch=Epoch(epoch),
            divergence=divergence,
            items=count(runs),
            newest_event_time=self.world.newest,
            watermark=self.world.newest,
        )
        state, more = policy.step(state, applied, self.placement)
        backup: BackUpState | None = None
        control = drops
        for one in (*asked, *more):
            match one:
                case BackUpState():
                    backup = one
                case RecordFailures():
                    control = True
                case _:
                    raise unknown_instruction(policy.name, one)
        return Step(epoch, receiver, state, backup, control)

    def finish(self, step: Step) -> Doing:
        """Make durable what is required, then commit."""
        yield from self.save(step)
        self.commit(step)

    def save(self, step: Step) -> Doing:
        """Write the state's backup, or a record of drops and failures, if there is need."""
        record = self.to_save(step)
        if record is not None:
            yield from self.write(record)

    def to_save(self, step: Step) -> Record | None:
        """What must be durable before the step may be committed."""
        if step.backup is not None:
            log = self.world.log(self)
            if log.frame_bytes > COMPACT_RATIO * max(log.full_bytes, COMPACT_FLOOR_BYTES):
                exports = self.sums.state.export_full(step.backup.rounding)
            else:
                exports = self.sums.state.export(step.backup.target, step.backup.rounding)
            if exports:
                saved, said = receive(step.receiver, StateSaved(), self.limits.l)
                failures = step.policy_state.failures
                return Record(
                    frame=encode(exports, slot=self.number, epoch=step.epoch, failures=failures),
                    full=all(export.full for export in exports.values()),
                    number=step.receiver.processed,
                    receiver=saved,
                    policy_state=step.policy_state,
                    said=tuple(one for one in said if isinstance(one, DropItems)),
                )
        if not step.control:
            return None
        drop = DropItems(upto=step.receiver.dropped)
        return Record(receiver=step.receiver, policy_state=step.policy_state, said=(drop,))

    def commit(self, step: Step) -> None:
        """The epoch is over: its items are in the state, for good or until the slot is lost."""
        self.sums.state.commit(step.epoch)
        self.receiver = step.receiver
        if step.policy_state is not self.policy_state:
            self.remember(step.policy_state)
        while self.runs and self.runs[0].last <= self.receiver.processed:
            self.runs.popleft()
        self.world.committed(self)
