"""Recovers a lost slot (AF-Stream 2019 §3.4.3), and measures the loss.

Found lost → backups read → state restored → the failure counted and priced, durably → items above the
state's number replayed. If the slot dies in the middle, recovery starts again; that costs nothing,
because no work has been done on the restored state. The price is computed as in a real recovery: from
the thresholds in the policy's durable state, not from the lost memory.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tether.core.ids import Epoch
from tether.core.thresholds import Thresholds
from tether.policies.events import Recovered
from tether.policies.instructions import RecordFailures
from tether.protocols.items import ReceiverState, recovered, replay
from tether.simulate.items import count, cut
from tether.simulate.store import Price, Record
from tether.simulate.sums import add_up
from tether.simulate.toll_book import Toll

if TYPE_CHECKING:
    from tether.simulate.clock import Doing
    from tether.simulate.item_slot import ItemSlot
    from tether.simulate.items import Run
    from tether.simulate.store import SlotLog
    from tether.state.segment import Array


class Fallen(NamedTuple):
    """The contents of a slot when it was lost; only the book knows them."""

    time: float
    position: float
    """Position of the stream, in its own time."""
    life: int
    """Number of the life that ended."""
    live: Array
    """Its sums at the end of the last committed epoch."""
    processed: int
    received: int
    runs: list[Run]
    """Items in its memory."""
    unacked: int


def recover(slot: ItemSlot) -> Doing:
    """Bring a lost slot back from what is durable."""
    world = slot.world
    clock, log, policy = world.clock, world.log(slot), world.scenario.policy
    fallen = slot.fallen
    assert fallen is not None
    yield clock.now + world.scenario.timing.detection
    yield world.store.transfer(slot.number, log.nbytes, clock.now)
    world.count_torn(log.cut_torn())

    slot.restore(log.frames())
    number = max((record.number for record in log.records if record.frame), default=0)
    known = [record.policy_state for record in log.records if record.policy_state is not None]
    before = known[-1] if known else policy.initial()
    price = Price(fallen.life, policy.thresholds(before, slot.placement))
    state, asked = policy.step(
        before,
        Recovered(epoch=Epoch(slot.epoch), newest_event_time=world.newest),
        slot.placement,
    )
    # Before the slot continues; otherwise another death would forget this failure (§3.5.2).
    assert any(isinstance(one, RecordFailures) for one in asked)
    yield from slot.write(Record(policy_state=state, price=price))

    chosen = replay((said for record in log.records for said in record.said), number)
    heard = [record.receiver for record in log.records if record.receiver is not None]
    durable = sorted({run.first: run for r in log.records for run in r.runs}.values())
    receiver = recovered(heard[-1] if heard else ReceiverState(), chosen)
    slot.back(receiver, deque(cut(durable, chosen.first, chosen.last)), state)
    _book(slot, fallen, number, durable)
    world.back(slot)


def _book(slot: ItemSlot, fallen: Fallen, number: int, durable: list[Run]) -> None:
    """Compare the slot before the loss, with what it was processing, to the recovered one."""
    saved = {n for run in durable for n in range(run.first, run.last + 1)}
    pending = cut(fallen.runs, fallen.processed + 1, fallen.received)
    lost = [
        one
        for run in pending
        if run.window_end is None
        for n in range(max(run.first, number + 1), run.last + 1)
        if n not in saved
        for one in [run.between(n, n)]
    ]
    # A backup that was whole when its writer died holds items that were not counted as processed.
    gone_on = add_up(fallen.live, cut(fallen.runs, fallen.processed + 1, number))
    above = max(fallen.processed, number)
    expected = add_up(gone_on, cut(durable, above + 1, 1 << 62))
    actual = add_up(slot.sums.values(), slot.runs)
    price = slot.world.log(slot).account.get(fallen.life)
    slot.world.book.loss(
        Toll(
            slot=slot.number,
            time=fallen.time,
            position=fallen.position,
            seconds=slot.world.clock.now - fallen.time,
            # A restart would report no cost for a loss without a durable record.
            allowed=price.limits if price else Thresholds(theta=0.0, l=0.0, gamma=0.0),
            state=slot.sums.distance(expected, actual),
            items=count(lost),
            unacked=fallen.unacked,
        )
    )


def readable_failures(log: SlotLog) -> int:
    """K as a recovery now would find it."""
    known = [r.policy_state for r in log.records if r.policy_state is not None and not r.torn]
    return known[-1].failures if known else 0
