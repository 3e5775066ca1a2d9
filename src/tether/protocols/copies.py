"""Who sits where and who speaks: copies of slots, as a pure machine (PPA 2016 §V-B).

A seat is a place where a slot runs: a partition that a host has put somewhere. Without copies slot i
runs in seat i. All seats of a slot take the same rows in and come to the same state; one of them
speaks. Roles are given out after the host has placed all seats, so that no copy shares an executor
with the seat that speaks for its slot.

When seats are lost, others of the same slots speak from the same epoch on. A seat without a state
stays empty, and takes no part, until it is filled: from a snapshot that is taken for it. Copies can be
kept together on *standby* executors that no slot speaks from: so that whatever takes all others at
once leaves them (PPA 2016 §V). A seat may be idle: hosts place seats as they like, and where they put
too many on one executor, some are left without a role.
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
"""In place of a slot: nobody runs in this seat."""
NOBODY = Seat(-1)
"""In place of a seat: nobody speaks yet."""


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
    """Of seats that were given to another slot just now: the slot whose state is to be removed there."""

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
    """Give out roles for seats that are placed; None if a copy would sit beside its slot.

    Each slot with a copy takes a seat on either of the two executors that have most of them left: so
    none is left alone while it can be helped. Of the two the one speaks whose executor has fewer who do.

    Args:
        slots: Number of slots.
        copied: Slots that get a copy.
        places: The executor of each seat; there are at least as many as slots and copies.
        standby: On so many executors, those with most seats, or on these, sit copies and nobody who
            speaks.

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
    """Seats that are free, and who has taken which."""

    def __init__(self, slots: int, seats: int, free: dict[str, list[Seat]]) -> None:
        self.free, self.speaking = free, dict.fromkeys(free, 0)
        self.runs, self.voices = [IDLE] * seats, [NOBODY] * slots

    def pair(self, apart: Collection[str]) -> tuple[str, str] | None:
        """Where a slot and its copy would sit; None if there is no such pair left."""
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
        """Let a slot speak from one place, and have its copy at another."""
        self.voices[slot] = self._seat(voice, slot)
        self.speaking[voice] += 1
        if copy is not None:
            self._seat(copy, slot)

    def _seat(self, place: str, slot: Slot) -> Seat:
        seat = self.free[place].pop(0)
        self.runs[seat] = slot
        return seat


def seats_needed(slots: int, copies: int, executors: int, standby: int = 0) -> int:
    """How many seats to place, so that there are enough on standby if hosts spread them evenly.

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
    """Give out roles where copies cannot be kept apart: better beside their slots than no query.

    Example:
        >>> beside(2, [1], ["a", "a", "a"])
        Seats(runs=(0, 1, 1), voices=(0, 1), lineages={}, left={})
    """
    idle = (IDLE,) * (len(places) - slots - len(copied))
    voices = tuple(map(Seat, range(slots)))
    return Seats(runs=(*each_slot(slots), *sorted(copied), *idle), voices=voices)


def misplaced(seats: Seats, at: Mapping[Seat, str], standby: int = 0) -> bool:
    """Whether a copy sits where it is of little use: beside its slot, or not on standby.

    Args:
        seats: The roles.
        at: The executor of each seat, as far as it is known.
        standby: How many executors are to have copies and nobody who speaks; 0: wherever they are apart.

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
    """The number under which a copy reports what it did: behind those of all slots."""
    return Slot(slots + seat)


def silent_seat(slots: int, number: Slot) -> Seat:
    """The copy that reported under such a number."""
    return Seat(number - slots)


def reported(seats: Seats, lineages: dict[Seat, Lineage]) -> Seats:
    """An epoch has ended: these copies have applied it, with the states of these lineages.

    A copy that has not is empty from now on: it missed rows.
    """
    return replace(seats, lineages=lineages, left={})


def promoted(seats: Seats, there: Collection[Seat], *, partly: bool = False) -> Seats | None:
    """Seats were lost: let copies speak in place of voices that are gone.

    Args:
        seats: As they were.
        there: Seats that still hold the state of the end of the epoch before.
        partly: Whether slots may be left without anybody who could speak for them; see :func:`silent`.

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
    """Slots that nobody can speak for: the voice is gone, and there is no copy with a state."""
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
