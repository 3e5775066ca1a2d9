"""Copies of slots in a running lane: which speak, which are empty, when they are filled or moved.

The roles are a pure machine (:mod:`tether.protocols.copies`). This class passes the reports of slots to
it, and tells the driver's books which state a slot continues with when a copy takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tether.core.graph import SlotId
from tether.core.ids import NEVER, Epoch, Lineage, Seat, Slot, each_slot, epoch_before
from tether.engine.messages import NO_STATE
from tether.engine.query.following import Following
from tether.protocols.copies import (
    IDLE,
    misplaced,
    moved,
    promoted,
    reported,
    silent,
    silent_seat,
)

if TYPE_CHECKING:
    from tether.core.graph import Graph
    from tether.engine.operators import CopyPlan
    from tether.engine.ports import Cluster, Orders, Statuses
    from tether.engine.query.lane import Books
    from tether.protocols.copies import Seats

FILL_AFTER, FILL_AGAIN = 3, 10
"""Number of epochs after a loss until empty seats are filled, as a dead executor is usually replaced by
then; the same number passes before each further attempt."""
Answer = Literal["promoted", "unchanged", "stuck"]
PROBES = 3
"""How many times seats are probed while executors are dying."""


class CopyStanding(NamedTuple):
    """One seat of a slot that has copies."""

    operator: str
    slot: int
    executor: str
    lag: int
    """Number of epochs that its state is behind."""
    speaks: bool


class Copies:
    """The copies of one lane.

    Args:
        books: What the lane keeps account of.
        cluster: Where seats are.
        plan: Which slots have a copy, and when copies move.
        graph: Who sends to whom.
    """

    def __init__(self, books: Books, cluster: Cluster[Any], plan: CopyPlan, graph: Graph) -> None:
        self._books, self._cluster, self._plan = books, cluster, plan
        self._following: Following | None = None
        if plan.gain is not None and plan.topology is not None:
            self._following = Following(graph, plan.topology, plan.gain, plan.planner)
        self._seats: dict[str, Seats] = {}
        self._fill_at: int | None = None
        self._at: dict[str, dict[Seat, str]] = {}
        """The executor of each seat, by operator, as of its last report."""
        self._applied: dict[str, dict[Seat, Epoch]] = {}
        """The last epoch that each seat has applied, by operator."""
        self._tried = -1
        """Number of executors when all seats were last placed."""

    def seats(self, operator: str) -> Seats | None:
        """The roles of an operator's seats; None where it has no copies."""
        return self._seats.get(operator)

    def place(self) -> None:
        """The cluster has placed all seats again: copies are empty until a snapshot fills them."""
        self._seats = dict(self._cluster.seats())
        self._tried = self._cluster.executors()
        self._fill_at, self._at, self._applied = None, {}, {}

    def standing(self) -> tuple[CopyStanding, ...]:
        """Every seat of the slots that have copies, as of the last epoch."""
        found = []
        for name, seats in self._seats.items():
            at, applied = self._at.get(name, {}), self._applied.get(name, {})
            newest = max(applied.values(), default=NEVER)
            for each in (each for each in seats.targets() if len(each) > 1):
                for seat in each:
                    lag = newest - applied.get(seat, NEVER)
                    speaks = seats.speaks(seat)
                    place = at.get(seat, "")
                    found.append(CopyStanding(name, seats.runs[seat], place, lag, speaks))
        return tuple(found)

    @property
    def copied(self) -> frozenset[SlotId]:
        """Slots that have a copy, filled or not."""
        return frozenset(
            SlotId(name, seats.runs[seat])
            for name, seats in self._seats.items()
            for seat in seats.copies
        )

    # ---- epochs --------------------------------------------------------------------------------

    def note(self, epoch: Epoch, statuses: Statuses) -> Statuses:
        """Note the reports of copies of an epoch; return those of the seats that speak."""
        voices: Statuses = {}
        for slot, status in statuses.items():
            if slot.slot < self._books.operators[slot.operator].slots:
                voices[slot] = status
        for operator, seats in self._seats.items():
            lineages = self._reports(operator, seats, statuses, epoch)
            self._tell(operator, seats, reported(seats, lineages), epoch)
            self._seats[operator] = reported(seats, lineages)
        if self._following is not None and self._books.aside.records:
            self._following.note(voices)
            self._look_for_better(self._following, epoch)
        if not self._wanting():
            self._fill_at = None
        elif self._fill_at is None:
            self._fill_at = epoch + FILL_AFTER
        return voices

    def _reports(
        self, operator: str, seats: Seats, statuses: Statuses, epoch: Epoch
    ) -> dict[Seat, Lineage]:
        """Which copies have applied the epoch, with the states of which lineages."""
        slots = self._books.operators[operator].slots
        own = {key.slot: status for key, status in statuses.items() if key.operator == operator}
        turn = min((status.turn for slot, status in own.items() if slot < slots), default=0)
        at, applied = self._at.setdefault(operator, {}), self._applied.setdefault(operator, {})
        lineages: dict[Seat, Lineage] = {}
        for slot, status in own.items():
            seat = seats.voices[slot] if slot < slots else silent_seat(slots, slot)
            # A copy that reported in an earlier turn may have been lost since.
            if slot >= slots and status.turn < turn:
                continue
            at[seat] = status.executor
            if slot < slots:
                applied[seat] = epoch
            elif status.lineage != NO_STATE:
                lineages[seat], applied[seat] = status.lineage, epoch
        return lineages

    def _tell(self, operator: str, before: Seats, now: Seats, epoch: Epoch) -> None:
        filled = sorted({now.runs[seat] for seat in set(before.empty) - set(now.empty)})
        emptied = sorted({now.runs[seat] for seat in set(now.empty) - set(before.empty)})
        if filled:
            cause = "they hold the state of their slots"
            self._books.reports.add("copied", cause, epoch, copies_of=operator, slots=filled)
        if emptied:
            cause = "their executor died"
            self._books.reports.add("copies-lost", cause, epoch, copies_of=operator, slots=emptied)

    def _wanting(self) -> bool:
        """Whether a copy is empty, badly placed, or about to move."""
        if self._following is not None and self._following.wanted is not None:
            return True
        return self._misplaced() or any(seats.empty for seats in self._seats.values())

    def _misplaced(self) -> bool:
        """Whether a copy is on the executor of its slot, and could be placed on another one."""
        if self._cluster.executors() == self._tried and self._tried <= self._plan.fewest:
            return False  # too few executors for a better place
        standby = self._plan.standby
        return any(
            misplaced(seats, self._at.get(name, {}), standby) for name, seats in self._seats.items()
        )

    # ---- losses --------------------------------------------------------------------------------

    def promote(self, orders: Orders, epoch: Epoch, why: str) -> Answer:
        """Let copies speak for slots that have lost their state, if all of these slots have one.

        Args:
            orders: What seats are told.
            epoch: The epoch that could not be run.
            why: What the slots said.

        Returns:
            "promoted": copies speak now, and the epoch can be run again at once. "unchanged": only
            silent seats were lost, and it can be run again as well. "stuck": a slot has no copy that
            could speak.
        """
        there = self.there(orders, epoch_before(epoch))
        if there is None:
            return "stuck"
        held = self._held(there)
        after: dict[str, Seats] = {}
        for name, one in self._books.operators.items():
            seats = self._seats.get(name)
            if seats is None:
                if not held[name].issuperset(each_slot(one.slots)):
                    return "stuck"
                continue
            now = promoted(seats, held[name])
            if now is None:
                return "stuck"
            after[name] = now
        return "promoted" if self._take_over(after, epoch, why) else "unchanged"

    def go_on(self, there: Statuses, epoch: Epoch, why: str) -> frozenset[SlotId]:
        """Let copies speak for slots that have lost their state, where there is a copy.

        Args:
            there: The seats that still have the state of the previous epoch.
            epoch: The epoch that could not be run.
            why: What the slots said.

        Returns:
            Slots without any seat that can speak.
        """
        held, lost, after = self._held(there), set[SlotId](), {}
        for name, one in self._books.operators.items():
            seats = self._seats.get(name)
            if seats is None:
                lost |= {
                    SlotId(name, slot) for slot in each_slot(one.slots) if slot not in held[name]
                }
                continue
            lost |= {SlotId(name, slot) for slot in silent(seats, held[name])}
            now = promoted(seats, held[name], partly=True)
            assert now is not None
            after[name] = now
        self._take_over(after, epoch, why)
        return frozenset(lost)

    def _held(self, there: Statuses) -> dict[str, set[Any]]:
        """For each operator, the seats whose state exists; its slots if it has no copies."""
        held: dict[str, set[Any]] = {name: set() for name in self._books.operators}
        for name, number in there:
            seats, slots = self._seats.get(name), self._books.operators[name].slots
            if seats is None:
                held[name].add(number)
            else:
                held[name].add(
                    seats.voices[number] if number < slots else silent_seat(slots, number)
                )
        return held

    def _take_over(self, after: dict[str, Seats], epoch: Epoch, why: str) -> bool:
        """Set new roles; returns whether a seat speaks that did not before."""
        changed = False
        for name, now in after.items():
            before = self._seats[name]
            taken = {
                Slot(slot): before.lineages[seat]
                for slot, seat in enumerate(now.voices)
                if before.voices[slot] != seat
            }
            self._seats[name] = now
            self._tell(name, before, now, epoch)
            if taken:
                changed = True
                self._books.lineages.take_over(name, taken)
                self._books.reports.add("promoted", why, epoch, copies_of=name, slots=sorted(taken))
        return changed

    def there(self, orders: Orders, epoch: Epoch) -> Statuses | None:
        """The seats that have the state of the end of an epoch; None where the probe fails."""
        for _ in range(PROBES):
            try:
                return self._cluster.ask(orders, "probe", epoch)
            except Exception:  # noqa: S112 - executors are dying: ask again
                continue
        return None

    # ---- filling and moving --------------------------------------------------------------------

    def fill_now(self, epoch: Epoch) -> bool:
        """Whether to end this epoch with a snapshot, from which the next one fills empty copies."""
        if self._fill_at is None or epoch < self._fill_at:
            return False
        self._fill_at = epoch + FILL_AGAIN
        return True

    def can_restore(self, epoch: Epoch) -> bool:
        """Whether a seat without a state can be filled now: a snapshot ended the previous epoch."""
        snapshot = self._books.newest_snapshot(epoch)
        return snapshot is not None and snapshot.epoch == epoch - 1

    def move_now(self, epoch: Epoch) -> bool:
        """Whether to place all seats again before this epoch, which can restore them from a snapshot."""
        return self.can_restore(epoch) and self._misplaced()

    def _look_for_better(self, following: Following, epoch: Epoch) -> None:
        if (better := following.look(epoch, self.copied)) is not None:
            self._books.reports.add(
                "replanned-copies",
                "the rates of slots have changed",
                epoch,
                fidelity=round(better.before, 4),
                then=round(better.after, 4),
                moves=len(better.copied - self.copied),
            )
            self._fill_at = epoch + 1

    def move_one(self, epoch: Epoch) -> None:
        """Move one copy towards the plan for the current rates, if it can be filled in its new seat."""
        following = self._following
        if following is None or following.wanted is None or not self.can_restore(epoch):
            return
        move = following.move(self.copied, self._possible(following.wanted))
        if move is None:
            return
        old, new = move.drops, move.takes
        seat = self._seat_of(old)
        if old.operator == new.operator:
            self._reseat(old.operator, seat, new.slot)
        else:
            idle = self._free_seat(new)
            assert idle is not None
            self._reseat(old.operator, seat, IDLE)
            self._reseat(new.operator, idle, new.slot)
        self._books.reports.add(
            "copy-moved",
            "the rates of slots have changed",
            epoch,
            from_slot=list(old),
            to_slot=list(new),
            fidelity=round(move.fidelity, 4),
        )
        self._fill_at = None if following.wanted is None else epoch + 1

    def _reseat(self, operator: str, seat: Seat, slot: Slot) -> None:
        self._seats[operator] = moved(self._seats[operator], seat, slot)
        self._cluster.reseat(operator, self._seats[operator])

    def _seat_of(self, slot: SlotId) -> Seat:
        seats = self._seats[slot.operator]
        return next(seat for seat in seats.copies if seats.runs[seat] == slot.slot)

    def _possible(self, wanted: frozenset[SlotId]) -> set[tuple[SlotId, SlotId]]:
        """Moves after which the copy is still on another executor than its slot."""
        have, found = self.copied, set()
        for new in wanted - have:
            for old in have - wanted:
                if old.operator != new.operator:
                    possible = self._free_seat(new) is not None
                else:
                    possible = self._apart(new, self._seat_of(old))
                if possible:
                    found.add((old, new))
        return found

    def _free_seat(self, slot: SlotId) -> Seat | None:
        """An idle seat for a copy of this slot."""
        seats = self._seats.get(slot.operator)
        idle = [] if seats is None else [Seat(s) for s, run in enumerate(seats.runs) if run == IDLE]
        return next((seat for seat in idle if self._apart(slot, seat)), None)

    def _apart(self, slot: SlotId, seat: Seat) -> bool:
        """Whether a seat is known to be on another executor than the seat that speaks for a slot."""
        at, seats = self._at.get(slot.operator, {}), self._seats[slot.operator]
        place = at.get(seat)
        return place is not None and place != at.get(seats.voices[slot.slot])
