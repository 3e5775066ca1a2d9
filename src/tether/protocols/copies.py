"""The seats of slots and their copies, and which of them speak: a pure machine (PPA 2016 §V-B).

A seat is a place where a slot runs: a partition that a host has put somewhere. Without copies slot i
runs in seat i. All seats of a slot take the same rows in and come to the same state; one of them
speaks. Roles are assigned after the host has placed all seats, so that no copy shares an executor with
the seat that speaks for its slot.

When seats are lost, other seats of the same slots speak, from the same epoch on. A seat without a state
is empty, and takes no part until it is filled from a snapshot that is taken for it. Copies can be placed
together on *standby* executors, from which no slot speaks, so that they survive a failure of all other
executors at once (PPA 2016 §V). A seat may be idle: the host decides where seats are, and if too many
are on one executor, some get no role.
"""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tether.core.ids import Lineage, Seat, Slot, each_slot

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

IDLE = Slot(-1)
"""Used instead of a slot: the seat is not in use."""
NOBODY = Seat(-1)
"""Used instead of a seat: no seat speaks for the slot yet."""


class Seats(msgspec.Struct, frozen=True, kw_only=True):
    """The seats of one operator.

    Args:
        runs: The slot of each seat; ``IDLE`` where there is none.
        voices: The seat that speaks for each slot.
        lineages: Of the copies that hold a state: which state that is. All others are empty.

    Example:
        >>> seats = Seats(runs=(0, 1, 0), voices=(0, 1))
        >>> seats.copies, seats.empty
        ((2,), (2,))
    """

    runs: tuple[Slot, ...]
    voices: tuple[Seat, ...]
    lineages: dict[Seat, Lineage] = {}
    left: dict[Seat, Slot] = {}
    """For seats that have just been given to another slot: the former slot, whose state must be removed
    there."""

    def speaks(self, seat: Seat) -> bool:
        """Whether a seat speaks for its slot."""
        slot = self.runs[seat]
        return slot != IDLE and self.voices[slot] == seat

    @property
    def copies(self) -> tuple[Seat, ...]:
        """Seats of slots that are silent."""
        seats = map(Seat, range(len(self.runs)))
        return tuple(at for at in seats if self.runs[at] != IDLE and not self.speaks(at))

    @property
    def empty(self) -> tuple[Seat, ...]:
        """Copies that hold no state."""
        return tuple(seat for seat in self.copies if seat not in self.lineages)

    def targets(self) -> tuple[tuple[Seat, ...], ...]:
        """For each slot, all its seats: where its rows go."""
        seats = list(map(Seat, range(len(self.runs))))
        return tuple(
            tuple(seat for seat in seats if self.runs[seat] == slot)
            for slot in range(len(self.voices))
        )


def seated(
    slots: int, copied: Collection[Slot], places: Sequence[str], standby: int | Collection[str] = 0
) -> Seats | None:
    """Assign roles to seats that are placed; None if a copy would be on its slot's executor.

    Each slot with a copy takes one seat on each of the two executors with the most free seats, so that
    slots can be kept apart from their copies as long as possible. Of the two, the seat on the executor
    with fewer voices speaks.

    Args:
        slots: Number of slots.
        copied: Slots that get a copy.
        places: The executor of each seat; there are at least as many as slots and copies.
        standby: Number of executors (those with the most seats are used), or their names, that hold
            copies only.

    Example:
        >>> seats = seated(2, [0, 1], ["a", "a", "b", "b"])
        >>> seats.runs, seats.voices
        ((0, 1, 0, 1), (0, 3))
        >>> seated(2, [0], ["a", "a", "a"]) is None
        True
        >>> seated(2, [0, 1], ["a", "b", "c", "c"], standby=1).voices
        (0, 1)
    """
    free: dict[str, list[Seat]] = {}
    for seat, place in enumerate(places):
        free.setdefault(place, []).append(Seat(seat))
    if isinstance(standby, int):
        standby = sorted(free, key=lambda place: (-len(free[place]), place))[:standby]
    apart = frozenset(standby)
    taking = _Taking(slots, len(places), free)
    for slot in sorted(copied):
        pair = taking.pair(apart)
        if pair is None:
            return None
        taking.take(slot, *pair)
    for slot in each_slot(slots):
        if taking.voices[slot] == NOBODY:
            left = [place for place in free if free[place] and place not in apart]
            if not left:
                return None
            taking.take(slot, min(left, key=lambda place: taking.speaking[place]))
    return Seats(runs=tuple(taking.runs), voices=tuple(taking.voices))


class _Taking:
    """The seats that are free, and those that are taken."""

    def __init__(self, slots: int, seats: int, free: dict[str, list[Seat]]) -> None:
        self.free, self.speaking = free, dict.fromkeys(free, 0)
        self.runs, self.voices = [IDLE] * seats, [NOBODY] * slots

    def pair(self, apart: Collection[str]) -> tuple[str, str] | None:
        """The executors for a slot and its copy; None if no pair is left."""
        left = [place for place, seats in self.free.items() if seats]
        if apart:
            speaks = [place for place in left if place not in apart]
            stands_by = [place for place in left if place in apart]
            if not speaks or not stands_by:
                return None
            fullest = max(stands_by, key=lambda place: len(self.free[place]))
            return min(speaks, key=lambda place: self.speaking[place]), fullest
        if len(left) < 2:
            return None
        two = nlargest(2, left, key=lambda place: len(self.free[place]))
        voice, copy = sorted(two, key=lambda place: self.speaking[place])
        return voice, copy

    def take(self, slot: Slot, voice: str, copy: str | None = None) -> None:
        """Take a seat that speaks on one executor, and one for the copy on another."""
        self.voices[slot] = self._seat(voice, slot)
        self.speaking[voice] += 1
        if copy is not None:
            self._seat(copy, slot)

    def _seat(self, place: str, slot: Slot) -> Seat:
        seat = self.free[place].pop(0)
        self.runs[seat] = slot
        return seat


def seats_needed(slots: int, copies: int, executors: int, standby: int = 0) -> int:
    """Number of seats to place, so that enough are on standby if hosts spread them evenly.

    Example:
        >>> seats_needed(4, 2, 3), seats_needed(4, 2, 3, standby=1)
        (6, 6)
        >>> seats_needed(2, 2, 3, standby=1)  # two on each, so that both copies sit on one
        6
    """
    if not standby or executors <= standby:
        return slots + copies
    each = max(-(-copies // standby), -(-slots // (executors - standby)))
    return max(slots + copies, each * executors)


def beside(slots: int, copied: Collection[Slot], places: Sequence[str]) -> Seats:
    """Assign roles where copies cannot be kept apart: they share an executor with their slots.

    Example:
        >>> beside(2, [1], ["a", "a", "a"])
        Seats(runs=(0, 1, 1), voices=(0, 1), lineages={}, left={})
    """
    idle = (IDLE,) * (len(places) - slots - len(copied))
    voices = tuple(map(Seat, range(slots)))
    return Seats(runs=(*each_slot(slots), *sorted(copied), *idle), voices=voices)


def misplaced(seats: Seats, at: Mapping[Seat, str], standby: int = 0) -> bool:
    """Whether a copy is badly placed: on the executor of its slot, or not on a standby one.

    Args:
        seats: The roles.
        at: The executor of each seat, as far as it is known.
        standby: Number of executors that hold copies only; 0: any executor but the slot's.

    Example:
        >>> seats = Seats(runs=(0, 1, 0), voices=(0, 1))
        >>> misplaced(seats, {0: "a", 1: "b", 2: "b"}), misplaced(seats, {0: "a", 1: "b", 2: "b"}, 1)
        (False, True)
    """
    known = [seat for seat in seats.copies if seat in at]
    if standby:
        speaking = {at.get(seat, "") for seat in seats.voices}
        return any(at[seat] in speaking for seat in known)
    return any(at[seat] == at.get(seats.voices[seats.runs[seat]]) for seat in known)


def silent_number(slots: int, seat: Seat) -> Slot:
    """The number that a copy uses in its report: above those of all slots."""
    return Slot(slots + seat)


def silent_seat(slots: int, number: Slot) -> Seat:
    """The copy that reported under such a number."""
    return Seat(number - slots)


def reported(seats: Seats, lineages: dict[Seat, Lineage]) -> Seats:
    """Note the end of an epoch: these copies have applied it, with states of these lineages.

    Other copies are empty from now on, because they have missed rows.
    """
    return replace(seats, lineages=lineages, left={})


def promoted(seats: Seats, there: Collection[Seat], *, partly: bool = False) -> Seats | None:
    """After a loss of seats, let copies speak in place of the voices that were lost.

    Args:
        seats: The roles before the loss.
        there: Seats that still hold the state of the end of the epoch before.
        partly: Whether slots may stay without a seat that could speak for them; see :func:`silent`.

    Returns:
        The new roles; None if a slot has no seat left that could speak, and none may be.

    Example:
        >>> seats = Seats(runs=(0, 1, 0), voices=(0, 1), lineages={2: "x"})
        >>> after = promoted(seats, {1, 2})
        >>> after.voices, after.empty
        ((2, 1), (0,))
        >>> promoted(seats, {0, 2}) is None
        True
        >>> promoted(seats, {2}, partly=True).voices, silent(seats, {2})
        ((2, 1), (1,))
    """
    voices = list(seats.voices)
    for slot, each in enumerate(seats.targets()):
        if voices[slot] in there:
            continue
        ready = [seat for seat in each if seat in seats.lineages and seat in there]
        if not ready and not partly:
            return None
        voices[slot] = ready[0] if ready else voices[slot]
    kept = {
        seat: lineage
        for seat, lineage in seats.lineages.items()
        if seat in there and seat not in voices
    }
    return replace(seats, voices=tuple(voices), lineages=kept)


def silent(seats: Seats, there: Collection[Seat]) -> tuple[Slot, ...]:
    """Slots without a voice: it was lost, and there is no copy with a state."""
    able = set(seats.voices) | set(seats.lineages)
    return tuple(
        Slot(slot)
        for slot, each in enumerate(seats.targets())
        if not any(seat in there and seat in able for seat in each)
    )


def moved(seats: Seats, seat: Seat, slot: Slot) -> Seats:
    """Let a copy's seat be a copy of another slot from now on; it is empty until it is filled.

    Example:
        >>> moved(Seats(runs=(0, 1, 0), voices=(0, 1), lineages={2: "x"}), 2, 1)
        Seats(runs=(0, 1, 1), voices=(0, 1), lineages={}, left={2: 0})
    """
    runs = tuple(slot if at == seat else each for at, each in enumerate(seats.runs))
    lineages = {at: each for at, each in seats.lineages.items() if at != seat}
    left = seats.left if seats.runs[seat] == IDLE else {**seats.left, seat: seats.runs[seat]}
    return replace(seats, runs=runs, lineages=lineages, left=left)
