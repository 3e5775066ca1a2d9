"""A run of a graph under Barrier on simulated channels: any schedule, any crashes.

All decisions are those of ``tether.core``; here is only what they are about: states, channels,
and a store whose writes take their time. ``Rules`` holds the functions that decide, so that a test
can break one of them on purpose.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tether.core.placement import Placement
from tether.policies.barrier import BarrierState
from tether.policies.events import BarrierAligned, Recovered
from tether.policies.instructions import TakePart
from tether.policies.recovery import FROM_SNAPSHOT
from tether.protocols import snapshots as sn
from tether.protocols.rewind import plan_rewind

from . import alignment as al
from .small_graphs import Answer, Case, Item, add, sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.core.graph import Channel, SlotId
    from tether.policies.barrier import Barrier


@dataclass(frozen=True)
class Rules:
    """What decides."""

    align: Callable[..., Any] = al.align
    coordinate: Callable[..., Any] = sn.coordinate
    plan: Callable[..., Any] = plan_rewind
    blocked: Callable[[al.SlotAlignment], frozenset[Channel]] = lambda state: state.blocked
    overtake: bool = False
    """Whether a barrier overtakes the items before it: channels that are not first in, first out."""


@dataclass(frozen=True)
class Part:
    """A durable part: what changed since the part it builds on, numbers of items, logged items."""

    onto: int | None
    changed: dict[Item, int]
    seen: dict[Channel, int]
    made: dict[Channel, int]
    log: tuple[tuple[Channel, int, Item], ...] = ()


@dataclass
class Live:
    """A slot's resident state."""

    counts: Counter[Item] = field(default_factory=Counter)
    seen: dict[Channel, int] = field(default_factory=dict)
    made: dict[Channel, int] = field(default_factory=dict)
    changed: set[Item] = field(default_factory=set)
    policy: BarrierState = field(default_factory=BarrierState)
    alignment: al.SlotAlignment = field(default_factory=al.SlotAlignment)
    copy: Part | None = None
    log: list[tuple[Channel, int, Item]] = field(default_factory=list)


Entry = tuple[int, Item] | int
"""An item with its number, or the number of a barrier."""


class SnapshotRun:
    """See the module."""

    def __init__(
        self,
        case: Case,
        streams: dict[Channel, list[Item]],
        policy: Barrier,
        rules: Rules,
        *,
        partial: bool,
    ) -> None:
        self.case, self.streams, self.policy, self.rules = case, streams, policy, rules
        self.partial = partial
        self.graph = case.graph
        self.slots = case.graph.slots
        self.inputs = {slot: frozenset(self.graph.inputs(slot)) for slot in self.slots}
        self.live: dict[SlotId, Live | None] = {slot: Live() for slot in self.slots}
        self.ways: dict[Channel, deque[Entry]] = {
            way: deque() for way in self.graph.channels() if not way.from_source
        }
        self.barriers: dict[Channel, int] = {}
        self.held = False
        self.epoch = 0
        # What is durable:
        self.parts: dict[tuple[SlotId, int], Part] = {}
        self.complete: int | None = None
        self.writes: list[tuple[SlotId, int, Part]] = []
        self.coordinator = sn.CoordinatorState()
        self.to_restore: list[Any] = []
        self.crashes = self.restored = self.restored_from_snapshot = self.completed = 0

    # ---- the schedule ---------------------------------------------------------------------------

    def progress(self) -> list[tuple[str, Any]]:
        """All that can happen next without a fault."""
        if self.to_restore:
            return [("restore", None)]
        found: list[tuple[str, Any]] = [
            ("deliver", way) for way, queue in self.ways.items() if self._free(way, queue)
        ]
        found += [("barrier", way) for way in self.barriers if self._unblocked(way)]
        if not self.held:
            found += [("read", way) for way in self.streams if self._readable(way)]
        found += [("written", n) for n in range(len(self.writes))]
        return found + [("recorded", None)] * self.coordinator.recording

    def faults(self) -> list[tuple[str, Any]]:
        """All that can go wrong now."""
        found: list[tuple[str, Any]] = [("unwritten", n) for n in range(len(self.writes))]
        for slot in self.slots:
            found += [("crash", slot), ("late", slot)][: 1 + self.coordinator.recording]
        if self.coordinator.number is not None:
            found.append(("failed", self.coordinator.number))
        return [*found, ("restart", None)]

    def delicate(self) -> bool:
        """Whether a fault now would hit where it hurts."""
        return bool(self.to_restore) or self.coordinator.recording

    def finished(self) -> bool:
        """Whether everything was read and processed."""
        return (
            not self.to_restore
            and not any(isinstance(entry, tuple) for queue in self.ways.values() for entry in queue)
            and not any(self._next(way) is not None for way in self.streams)
        )

    def answer(self) -> Answer:
        return {slot: Counter(self._alive(slot).counts) for slot in self.slots}

    def do(self, action: str, about: Any) -> None:
        getattr(self, f"_do_{action}")(about)

    # ---- channels -------------------------------------------------------------------------------

    def _alive(self, slot: SlotId) -> Live:
        live = self.live[slot]
        assert live is not None
        return live

    def _unblocked(self, way: Channel) -> bool:
        return way not in self.rules.blocked(self._alive(way.receiver).alignment)

    def _free(self, way: Channel, queue: deque[Entry]) -> bool:
        return bool(queue) and self._unblocked(way)

    def _next(self, way: Channel) -> Item | None:
        place = self._alive(way.receiver).seen.get(way, 0)
        return self.streams[way][place] if place < len(self.streams[way]) else None

    def _readable(self, way: Channel) -> bool:
        return way not in self.barriers and self._unblocked(way) and self._next(way) is not None

    def _do_read(self, way: Channel) -> None:
        item = self._next(way)
        assert item is not None
        self._take(way, self._alive(way.receiver).seen.get(way, 0) + 1, item)

    def _do_deliver(self, way: Channel) -> None:
        entry = self.ways[way].popleft()
        if isinstance(entry, int):
            self._align(way.receiver, al.BarrierCame(channel=way, number=entry))
            return
        seen = self._alive(way.receiver).seen.get(way, 0)
        if not self.partial:
            # All went back to one moment together: nothing is missing, and nothing comes twice.
            assert entry[0] == seen + 1, "the snapshot was not of one moment"
        if entry[0] > seen:
            self._take(way, *entry)

    def _do_barrier(self, way: Channel) -> None:
        number = self.barriers.pop(way)
        self._align(way.receiver, al.BarrierCame(channel=way, number=number))

    def _take(self, way: Channel, number: int, item: Item) -> None:
        self._align(way.receiver, al.ItemsCame(channel=way), (number, item))

    # ---- a slot ---------------------------------------------------------------------------------

    def _align(
        self, slot: SlotId, event: al.AlignmentEvent, entry: tuple[int, Item] | None = None
    ) -> None:
        live = self._alive(slot)
        live.alignment, asked = self.rules.align(live.alignment, event, self.inputs[slot])
        for step in asked:
            if isinstance(step, al.CopyState):
                self._copy(live, step.number)
            elif isinstance(step, al.ForwardBarrier):
                for way in (way for ways in self.case.ways[slot] for way in ways):
                    if self.rules.overtake:
                        self.ways[way].appendleft(step.number)
                    else:
                        self.ways[way].append(step.number)
            elif isinstance(step, al.LogItems):
                assert entry is not None
                live.log.append((step.channel, *entry))
            elif isinstance(step, al.ProcessItems):
                assert entry is not None
                self._process(slot, step.channel, *entry)
            elif isinstance(step, al.WritePart):
                assert live.copy is not None
                part = replace(live.copy, log=tuple(live.log))
                self.writes.append((slot, step.number, part))
                live.copy, live.log = None, []
            elif isinstance(step, al.DropCopy):
                live.copy, live.log = None, []

    def _copy(self, live: Live, number: int) -> None:
        live.policy, asked = self.policy.step(
            live.policy,
            BarrierAligned(epoch=self.epoch, number=number, complete=self.coordinator.complete),
            Placement(),
        )
        (take,) = asked
        assert isinstance(take, TakePart)
        keys = live.counts.keys() if take.onto is None else live.changed
        changed = {key: live.counts[key] for key in keys}
        live.copy = Part(take.onto, changed, dict(live.seen), dict(live.made))
        live.changed, live.log = set(), []

    def _process(self, slot: SlotId, way: Channel, number: int, item: Item) -> None:
        live = self._alive(slot)
        live.seen[way] = number
        add(live.counts, item)
        live.changed.add(item)
        for out, made in sent(self.case, slot, item):
            live.made[out] = live.made.get(out, 0) + 1
            self.ways[out].append((live.made[out], made))

    # ---- the coordinator ------------------------------------------------------------------------

    def _coordinate(self, event: sn.CoordinatorEvent) -> None:
        slots = frozenset(self.slots)
        self.coordinator, asked = self.rules.coordinate(self.coordinator, event, self.policy, slots)
        for step in asked:
            if isinstance(step, sn.BeginSnapshot):
                self.barriers = dict.fromkeys(self.streams, step.number)
                self.held = step.hold_sources
            elif isinstance(step, sn.GiveUpSnapshot):
                self.barriers = {}
                for slot in self.slots:
                    if self.live[slot] is not None:
                        self._align(slot, al.SnapshotGivenUp(number=step.number))
            elif isinstance(step, sn.ReleaseSources):
                self.held = False
            elif isinstance(step, sn.DropOlder):
                self._drop_older(step.number)

    def _do_tick(self, _: None) -> None:
        self.epoch += 1
        self._coordinate(sn.EpochBegins(epoch=self.epoch))

    def _do_written(self, which: int) -> None:
        slot, number, part = self.writes.pop(which)
        self.parts[slot, number] = part
        self._coordinate(sn.PartsDurable(slots=frozenset([slot]), number=number))

    def _do_unwritten(self, which: int) -> None:
        _, number, _ = self.writes.pop(which)
        self._coordinate(sn.PartFailed(number=number))

    def _do_failed(self, number: int) -> None:
        self._coordinate(sn.PartFailed(number=number))

    def _do_recorded(self, _: None) -> None:
        assert self.coordinator.number is not None
        self.complete = self.coordinator.number
        self.completed += 1
        self._coordinate(sn.CompleteRecorded(number=self.complete))

    def _drop_older(self, number: int) -> None:
        needed = {key for slot in self.slots for key in self._chain(slot, number)}
        self.parts = {key: p for key, p in self.parts.items() if key in needed or key[1] > number}

    def _chain(self, slot: SlotId, number: int | None) -> list[tuple[SlotId, int]]:
        chain = []
        while number is not None:
            chain.append((slot, number))
            part = self.parts.get((slot, number))
            number = part.onto if part else None
        return chain[::-1]

    # ---- failures -------------------------------------------------------------------------------

    def _do_crash(self, slot: SlotId) -> None:
        """A slot's state is gone, perhaps in the midst of a recovery."""
        self.crashes += 1
        self.live[slot] = None
        self._coordinate(sn.SlotsLost())
        lost = [one for one, live in self.live.items() if live is None]
        lost += [back.slot for back in self.to_restore]
        self._go_back(lost)

    def _do_late(self, slot: SlotId) -> None:
        """The record becomes durable, but the loss comes first: only a new driver will read it."""
        self.complete = self.coordinator.number
        self._do_crash(slot)

    def _do_restart(self, _: None) -> None:
        """The driver is gone and with it all that is not durable; parts may still be written."""
        self.crashes += 1
        self.live = dict.fromkeys(self.slots)
        self.coordinator = sn.resumed(self.complete)
        self.writes, self.barriers, self.held = [], {}, False
        self._go_back(list(self.slots))

    def _go_back(self, lost: list[SlotId]) -> None:
        plan = self.rules.plan(
            self.graph, FROM_SNAPSHOT, lost, self.epoch, durable=-1, partial=self.partial
        )
        for back in plan.restore:
            self.live[back.slot] = None
        # What is in flight from a slot that goes back will be sent again, and barriers of the
        # snapshot that was given up mean nothing any more.
        for way, queue in self.ways.items():
            if self.live[way.sender] is None:
                queue.clear()
        self.to_restore = list(plan.restore)

    def _do_restore(self, _: None) -> None:
        back = self.to_restore.pop(0)
        slot = back.slot
        live = Live(alignment=al.SlotAlignment(over=self.coordinator.next_number - 1))
        for key in self._chain(slot, self.coordinator.complete):
            assert key in self.parts, "a part is gone that is needed, or was never written"
            part = self.parts[key]
            live.counts.update({k: v - live.counts[k] for k, v in part.changed.items()})
            live.seen, live.made = dict(part.seen), dict(part.made)
        live.policy = self.policy.step(live.policy, Recovered(epoch=self.epoch), Placement())[0]
        self.live[slot] = live
        self.restored += 1
        self.restored_from_snapshot += self.coordinator.complete is not None
        if not self.to_restore:
            for restored in self._restored_slots():
                self._put_back(restored)

    def _restored_slots(self) -> list[SlotId]:
        return [slot for slot in self.slots if self._alive(slot).policy.failures]

    def _put_back(self, slot: SlotId) -> None:
        """Feedback items that the snapshot holds are in transit again, before all that follows."""
        live = self._alive(slot)
        live.policy = BarrierState()
        complete = self.coordinator.complete
        part = None if complete is None else self.parts.get((slot, complete))
        for way, number, item in (part.log if part else ())[::-1]:
            self.ways[way].appendleft((number, item))
