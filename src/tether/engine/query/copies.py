"""Copies of slots in a running lane: who speaks, who is empty, and when empty ones are filled.

The roles are a pure machine (:mod:`tether.protocols.copies`). Here it is told what slots report, and the
driver's books learn which state a slot goes on with when a copy takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.ids import Epoch, Slot, epoch_before
from tether.protocols.copies import promoted, reported, silent_seat

if TYPE_CHECKING:
    from tether.engine.ports import Cluster, Orders, Statuses
    from tether.engine.query.lane import Books
    from tether.protocols.copies import Seats

FILL_AFTER, FILL_AGAIN = 3, 10
"""So many epochs after a loss empty seats are filled, for a dead executor is replaced by then; and so
many after that it is tried again."""
PROBES = 3
"""How often seats are asked who is there, while executors are dying."""


class Copies:
    """The copies of one lane.

    Args:
        books: What the lane keeps account of.
        cluster: Where seats are.
    """

    def __init__(self, books: Books, cluster: Cluster[Any]) -> None:
        self._books, self._cluster = books, cluster
        self._seats: dict[str, Seats] = {}
        self._fill_at: int | None = None
        self._beside = False
        """Whether a copy was seen on the executor of its voice: it would die with it."""

    def seats(self, operator: str) -> Seats | None:
        """The roles of an operator's seats; None where it has no copies."""
        return self._seats.get(operator)

    def place(self) -> None:
        """The cluster has placed all seats again: copies are empty, and fill from the snapshot."""
        self._seats = dict(self._cluster.seats())
        self._fill_at, self._beside = None, False

    # ---- epochs --------------------------------------------------------------------------------

    def note(self, epoch: Epoch, statuses: Statuses) -> Statuses:
        """An epoch has been run: take what copies report; give the reports of those who speak."""
        voices: Statuses = {}
        for slot, status in statuses.items():
            if slot.slot < self._books.operators[slot.operator].slots:
                voices[slot] = status
        for operator, seats in self._seats.items():
            slots = self._books.operators[operator].slots
            spoke = {s.slot: s for key, s in voices.items() if key.operator == operator}
            turn = min((status.turn for status in spoke.values()), default=0)
            lineages = {}
            for slot, status in statuses.items():
                # One of an earlier turn was there then; nobody knows whether it still is.
                if slot.operator != operator or slot.slot < slots or status.turn < turn:
                    continue
                seat = silent_seat(slots, slot.slot)
                lineages[seat] = status.lineage
                voice = spoke.get(seats.runs[seat])
                self._beside |= voice is not None and voice.executor == status.executor
            self._tell(operator, seats, reported(seats, lineages), epoch)
            self._seats[operator] = reported(seats, lineages)
        if not self._wanting():
            self._fill_at = None
        elif self._fill_at is None:
            self._fill_at = epoch + FILL_AFTER
        return voices

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
        """Whether a copy is empty, or where it is of no use."""
        return self._beside or any(seats.empty for seats in self._seats.values())

    # ---- losses --------------------------------------------------------------------------------

    def promote(self, orders: Orders, epoch: Epoch, why: str) -> bool:
        """Slots have lost their state: let their copies speak, if all of them have one.

        Args:
            orders: What seats are told.
            epoch: The epoch that could not be run.
            why: What the slots said.

        Returns:
            Whether the epoch can be run again at once.
        """
        there = self._there(orders, epoch_before(epoch))
        if there is None:
            return False
        after: dict[str, Seats] = {}
        for name, one in self._books.operators.items():
            held = {slot.slot for slot in there if slot.operator == name}
            seats = self._seats.get(name)
            if seats is None:
                if held < set(range(one.slots)):
                    return False
                continue
            voices = {seats.voices[slot] for slot in held if slot < one.slots}
            copies = {silent_seat(one.slots, slot) for slot in held if slot >= one.slots}
            now = promoted(seats, voices | copies)
            if now is None:
                return False
            after[name] = now
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

    def _there(self, orders: Orders, epoch: Epoch) -> Statuses | None:
        for _ in range(PROBES):
            try:
                return self._cluster.ask(orders, "probe", epoch)
            except Exception:  # noqa: S112 - executors are dying: ask again
                continue
        return None

    # ---- filling -------------------------------------------------------------------------------

    def fill_now(self, epoch: Epoch) -> bool:
        """Whether a snapshot is to end this epoch, from which empty copies are filled in the next."""
        if self._fill_at is None or epoch < self._fill_at:
            return False
        self._fill_at = epoch + FILL_AGAIN
        return True

    def move_now(self, epoch: Epoch) -> bool:
        """Whether all seats are to be placed again before this epoch, which can restore them."""
        snapshot = self._books.newest_snapshot(epoch)
        return self._beside and snapshot is not None and snapshot.epoch == epoch - 1
