"""A run of a graph under UpstreamBackup on simulated channels: any schedule, any crashes."""

from __future__ import annotations

from collections import Counter, deque
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tether.protocols.item_sender import ItemsAcked, ItemsOffered, ReleaseItems, SendItems
from tether.protocols.items import Acknowledge, StateSaved, TakeItems

from . import upstream_items as up
from .small_graphs import Answer, Case, Item, add, sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.core.graph import Channel, SlotId
    from tether.policies.upstream_backup import UpstreamBackup


@dataclass(frozen=True)
class Rules:
    """What decides."""

    send: Callable[..., Any] = up.send_logged
    take: Callable[..., Any] = up.take_numbered
    order: Callable[..., Any] = up.next_in_order


@dataclass
class Live:
    """A slot's resident state."""

    counts: Counter[Item] = field(default_factory=Counter)
    inbox: up.Inbox = field(default_factory=up.Inbox)
    boxes: dict[str, up.Outbox] = field(default_factory=dict)
    items: int = 0
    saved: int = 0
    taken: int = 0
    """Items taken since the backup: a place in the logged order."""
    unlogged: list[str] = field(default_factory=list)
    """Channels that items were taken from since the newest log entry."""


@dataclass
class Durable:
    """What survives of a slot: its backup, its log, and the order in which it took items since."""

    backup: Live = field(default_factory=Live)
    log: dict[str, dict[int, Item]] = field(default_factory=dict)
    trimmed: dict[str, int] = field(default_factory=dict)
    order: tuple[str, ...] = ()


class UpstreamRun:
    """See the module. A channel is known to the protocol by its text."""

    def __init__(
        self,
        case: Case,
        streams: dict[Channel, list[Item]],
        policy: UpstreamBackup,
        rules: Rules,
    ) -> None:
        self.case, self.streams, self.policy, self.rules = case, streams, policy, rules
        self.slots = case.graph.slots
        self.by_name = {str(way): way for way in case.graph.channels()}
        self.ways: dict[str, deque[tuple[int, Item]]] = {
            name: deque() for name, way in self.by_name.items() if not way.from_source
        }
        self.live: dict[SlotId, Live | None] = {slot: Live() for slot in self.slots}
        self.durable = {slot: Durable() for slot in self.slots}
        self.crashes = self.backups = self.replayed = 0

    # ---- the schedule ---------------------------------------------------------------------------

    def progress(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [
            ("deliver", name) for name, queue in self.ways.items() if queue and self._may(name)
        ]
        found += [("read", str(way)) for way in self.streams if self._readable(way)]
        return found + [("restore", slot) for slot, live in self.live.items() if live is None]

    def faults(self) -> list[tuple[str, Any]]:
        return [("crash", slot) for slot in self.slots]

    def delicate(self) -> bool:
        return any(live is None for live in self.live.values())

    def finished(self) -> bool:
        return (
            not self.delicate()
            and not any(self.ways.values())
            and not any(self._next(way) is not None for way in self.streams)
        )

    def answer(self) -> Answer:
        return {slot: Counter(self._alive(slot).counts) for slot in self.slots}

    def do(self, action: str, about: Any) -> None:
        getattr(self, f"_do_{action}")(about)

    # ---- items ----------------------------------------------------------------------------------

    def _alive(self, slot: SlotId) -> Live:
        live = self.live[slot]
        assert live is not None
        return live

    def _may(self, name: str) -> bool:
        slot = self.by_name[name].receiver
        live = self.live[slot]
        if live is None:
            return False
        wanted = self.rules.order(self.durable[slot].order, live.taken)
        # What has been seen already is dropped, whoever's turn it is.
        known = name in self.ways and self.ways[name][0][0] <= live.inbox.seen.get(name, 0)
        return known or wanted is None or wanted == name

    def _next(self, way: Channel) -> Item | None:
        place = self._alive(way.receiver).inbox.seen.get(str(way), 0)
        return self.streams[way][place] if place < len(self.streams[way]) else None

    def _readable(self, way: Channel) -> bool:
        return (
            self.live[way.receiver] is not None
            and self._next(way) is not None
            and self._may(str(way))
        )

    def _do_read(self, name: str) -> None:
        way = self.by_name[name]
        item = self._next(way)
        assert item is not None
        self._take(name, self._alive(way.receiver).inbox.seen.get(name, 0) + 1, item)

    def _do_deliver(self, name: str) -> None:
        self._take(name, *self.ways[name].popleft())

    def _take(self, name: str, number: int, item: Item) -> None:
        slot = self.by_name[name].receiver
        live = self._alive(slot)
        came = up.NumberedItemsCame(channel=name, first=number, count=1)
        live.inbox, asked = self.rules.take(live.inbox, came)
        for step in asked:
            if isinstance(step, up.AskAgain):
                self.ways[name].clear()
                self._send(self.by_name[name].sender, name, up.SendAgain(after=step.after))
            elif isinstance(step, Acknowledge):
                self._acknowledge(step)
            else:
                assert isinstance(step, TakeItems)
                self._process(slot, name, item)
        if self.policy.due(live.items, live.saved):
            self._save(slot)

    def _process(self, slot: SlotId, name: str, item: Item) -> None:
        live = self._alive(slot)
        live.items += 1
        live.taken += 1
        live.unlogged.append(name)
        add(live.counts, item)
        outputs = sent(self.case, slot, item)
        # One durable write: the order of what was taken, and all that came of it.
        if outputs:
            durable = self.durable[slot]
            fresh = max(0, live.taken - len(durable.order))
            durable.order += tuple(live.unlogged[len(live.unlogged) - fresh :])
            live.unlogged = []
        for way, made in outputs:
            self._send(slot, str(way), ItemsOffered(count=1), made)

    def _send(
        self, slot: SlotId, name: str, event: up.OutboxEvent, made: Item | None = None
    ) -> None:
        live = self.live[slot]
        if live is None:
            return  # it sends all that is not acknowledged when it comes back
        durable = self.durable[slot]
        box = live.boxes.get(name, up.Outbox())
        live.boxes[name], asked = self.rules.send(box, event)
        log = durable.log.setdefault(name, {})
        for step in asked:
            if isinstance(step, up.LogToSend):
                assert made is not None
                log[step.first] = made
            elif isinstance(step, SendItems):
                numbers = range(step.first, step.last + 1)
                assert all(number in log for number in numbers), "trimmed what is needed"
                self.ways[name].extend((number, log[number]) for number in numbers)
                self.replayed += len(numbers) * step.again
            elif isinstance(step, ReleaseItems):
                durable.trimmed[name] = step.upto
                for number in [number for number in log if number <= step.upto]:
                    del log[number]

    def _save(self, slot: SlotId) -> None:
        live, durable = self._alive(slot), self.durable[slot]
        live.saved = live.items
        durable.order = durable.order[live.taken :]
        live.taken, live.unlogged = 0, []
        durable.backup = deepcopy(live)
        self.backups += 1
        live.inbox, asked = self.rules.take(live.inbox, StateSaved())
        for step in asked:
            self._acknowledge(step)

    def _acknowledge(self, step: Acknowledge) -> None:
        way = self.by_name[step.sender]
        if not way.from_source:
            self._send(way.sender, step.sender, ItemsAcked(upto=step.upto))

    # ---- failures -------------------------------------------------------------------------------

    def _do_crash(self, slot: SlotId) -> None:
        self.crashes += 1
        self.live[slot] = None
        for name, queue in self.ways.items():
            if slot in self.by_name[name][:2]:
                queue.clear()

    def _do_restore(self, slot: SlotId) -> None:
        durable = self.durable[slot]
        live = deepcopy(durable.backup)
        for name, box in live.boxes.items():
            trimmed = durable.trimmed.get(name, 0)
            logged = max([trimmed, *durable.log.get(name, {})])
            live.boxes[name] = up.sender_restored(box.made, logged, trimmed)
        for name, log in durable.log.items():
            trimmed = durable.trimmed.get(name, 0)
            live.boxes.setdefault(name, up.sender_restored(0, max([trimmed, *log]), trimmed))
        self.live[slot] = live
        for name in list(live.boxes):
            self._send(slot, name, up.SendAgain(after=durable.trimmed.get(name, 0)))
        for way in self.case.graph.inputs(slot):
            if not way.from_source:
                after = live.inbox.seen.get(str(way), 0)
                self.ways[str(way)].clear()
                self._send(way.sender, str(way), up.SendAgain(after=after))
