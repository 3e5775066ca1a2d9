"""Who sits where and who speaks: copies of slots, as a pure machine (PPA 2016 §V-B).

A seat is a place where a slot runs: a partition that a host has put somewhere. Without copies slot i
runs in seat i. All seats of a slot take the same rows in and come to the same state; one of them
speaks. Roles are given out after the host has placed all seats, so that no copy shares an executor
with the seat that speaks for its slot.

When seats are lost, others of the same slots speak from the same epoch on. A seat without a state
stays empty, and takes no part, until it is filled: from a snapshot that is taken for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tether.core.ids import Lineage, Seat, Slot, each_slot

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Seats(msgspec.Struct, frozen=True, kw_only=True):
    """The seats of one operator.

    Args:
        runs: The slot of each seat.
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

    def speaks(self, seat: Seat) -> bool:
        """Whether a seat speaks for its slot."""
        return self.voices[self.runs[seat]] == seat

    @property
    def copies(self) -> tuple[Seat, ...]:
        """Seats that are silent."""
        return tuple(seat for seat in map(Seat, range(len(self.runs))) if not self.speaks(seat))

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


def seated(slots: int, copied: Collection[Slot], places: Sequence[str]) -> Seats | None:
    """Give out roles for seats that are placed; None if a copy would sit beside its slot.

    Each slot with a copy takes a seat on either of the two executors that have most of them left: so
    none is left alone while it can be helped. Of the two the one speaks whose executor has fewer who do.

    Args:
        slots: Number of slots.
        copied: Slots that get a copy.
        places: The executor of each seat; there are as many as slots and copies.

    Example:
        >>> seats = seated(2, [0, 1], ["a", "a", "b", "b"])
        >>> seats.runs, seats.voices
        ((0, 1, 0, 1), (0, 3))
        >>> seated(2, [0], ["a", "a", "a"]) is None
        True
    """
    free: dict[str, list[Seat]] = {}
    for seat, place in enumerate(places):
        free.setdefault(place, []).append(Seat(seat))
    speaking = dict.fromkeys(free, 0)
    runs, voices = [Slot(-1)] * len(places), [Seat(-1)] * slots

    def take(place: str, slot: Slot) -> Seat:
        seat = free[place].pop(0)
        runs[seat] = slot
        return seat

    for slot in sorted(copied):
        fullest = sorted((place for place in free if free[place]), key=lambda x: -len(free[x]))[:2]
        if len(fullest) < 2:
            return None
        voice, copy = sorted(fullest, key=lambda place: speaking[place])
        voices[slot] = take(voice, slot)
        take(copy, slot)
        speaking[voice] += 1
    for slot in each_slot(slots):
        if voices[slot] < 0:
            place = min((x for x in free if free[x]), key=lambda x: speaking[x])
            voices[slot] = take(place, slot)
            speaking[place] += 1
    return Seats(runs=tuple(runs), voices=tuple(voices))


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
    return replace(seats, lineages=lineages)


def promoted(seats: Seats, there: Collection[Seat]) -> Seats | None:
    """Seats were lost: let copies speak in place of voices that are gone.

    Args:
        seats: As they were.
        there: Seats that still hold the state of the end of the epoch before.

    Returns:
        The new roles; None if a slot has no seat left that could speak.

    Example:
        >>> seats = Seats(runs=(0, 1, 0), voices=(0, 1), lineages={2: "x"})
        >>> after = promoted(seats, {1, 2})
        >>> after.voices, after.empty
        ((2, 1), (0,))
        >>> promoted(seats, {0, 2}) is None
        True
    """
    voices = []
    for slot, voice in enumerate(seats.voices):
        ready = [seat for seat in seats.targets()[slot] if seat in seats.lineages and seat in there]
        if voice not in there and not ready:
            return None
        voices.append(voice if voice in there else ready[0])
    kept = {
        seat: lineage
        for seat, lineage in seats.lineages.items()
        if seat in there and seat not in voices
    }
    return replace(seats, voices=tuple(voices), lineages=kept)
