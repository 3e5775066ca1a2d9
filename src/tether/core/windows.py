"""Windows: when a threshold that failures have reduced is restored (AF-Stream 2019 §3.5.2).

Each failure halves a slot's threshold, so after many failures everything is backed up. If an answer
covers only a window of the stream, an old loss no longer matters, and its part of the budget is free
again:

- ``Hopping``: at the end of a window, thresholds have their initial values again; where windows
  overlap, once all those that a failure was in have ended.
- ``Sliding``: when a failure has left the window, its halving is undone.
- ``Decaying``: thresholds are never halved, because errors fade.

A position is a place in the stream, in the unit of the window: an event time in seconds, the number of
an epoch, or the number of a row of the slot (from 0). The position of a failure is that of the newest
row that may be wrong because of it. If it is not known exactly, a later position is used: then the
threshold is restored later, never too early.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import force_setattr

from tether.core.checks import amount, count
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterator


Unit = Literal["seconds", "items", "epochs"]
"""What a window is measured in: seconds of event time, rows of the slot, or epochs."""


class _Window(msgspec.Struct, frozen=True):
    length: float
    by: Unit = "seconds"

    def __post_init__(self) -> None:
        if self.by not in ("seconds", "items", "epochs"):
            raise BadValueError(
                f"A window cannot be measured by {self.by!r}.",
                why="Windows go by event time, by items or by epochs.",
                do="Give by='seconds', by='items' or by='epochs'.",
            )
        if self.by == "seconds":
            checked = amount("length", self.length, unit="seconds", zero=None, infinite=None)
        else:
            checked = float(count("length", self.length, unit=self.by))
        force_setattr(self, "length", checked)

    @property
    def has_ends(self) -> bool:
        """Whether it ends at times, each time with an answer of its own."""
        return False

    @property
    def step(self) -> float:
        """From the end of one window to that of the next; for windows without ends, the length."""
        return self.length

    def ends(self, *, after: float, upto: float) -> Iterator[float]:  # noqa: ARG002
        """Ends of windows in (after, upto]: none, unless it ends at times."""
        return iter(())

    def describe(self) -> dict[str, object]:
        """Its settings as plain values."""
        return {"kind": type(self).__name__.lower(), "length": self.length, "by": self.by}


class Hopping(_Window, frozen=True, tag="hopping"):
    """Windows end to end, each with its own answer: [0, length), [length, 2·length)...

    With ``every`` below ``length`` windows overlap: one ends at each multiple of ``every``, and a row
    is in several of them.

    Guarantee: the error of the answer of any window is at most Θ. A loss counts until every window that
    it may have affected has ended: with rows that came early that is a later one, and where windows
    overlap, the last one that its newest row is in.

    Args:
        length: In units of ``by``, above 0; whole for items and epochs.
        by: "seconds" of event time, "items" (rows of the slot) or "epochs".
        every: Seconds between the ends of windows that overlap; by default they do not.

    Example:
        >>> list(Hopping(60).ends(after=59, upto=185))
        [60.0, 120.0, 180.0]
        >>> list(Hopping(60, every=40).ends(after=59, upto=185))
        [80.0, 120.0, 160.0]
    """

    every: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every is None:
            return
        if self.by != "seconds":
            raise BadValueError(
                f"Windows by {self.by} cannot overlap.",
                why="Only rows with a time can be in several windows.",
                do="Leave every out, or measure the window by='seconds'.",
            )
        every = amount("every", self.every, unit="seconds", zero=None, infinite=None)
        if every > self.length:
            raise BadValueError(
                f"Windows of {self.length:g} seconds cannot begin every {every:g} seconds.",
                why="Rows between two windows would be in none.",
                do="Give every at most the length.",
            )
        force_setattr(self, "every", every)

    def describe(self) -> dict[str, object]:
        """Its settings as plain values."""
        every = {} if self.every is None else {"every": self.every}
        return {**super().describe(), **every}

    @property
    def has_ends(self) -> bool:
        """It ends at each multiple of its step."""
        return True

    @property
    def step(self) -> float:
        """From the end of one window to that of the next."""
        return self.length if self.every is None else self.every

    def first_in_question(self, now: float) -> float:
        """Losses before this place are in no window that ends after ``now``, where one has ended.

        Example:
            >>> Hopping(60).first_in_question(120.0), Hopping(60, every=20).first_in_question(120.0)
            (120.0, 79.99999999999999)
        """
        if self.every is None:
            return now
        # One step down, so that what is rounded here lets no loss go too early.
        return math.nextafter(now - (self.length - self.every), -math.inf)

    def ends(self, *, after: float, upto: float) -> Iterator[float]:
        """Ends of windows in (after, upto]: where the runtime sends a ``WindowEnd``.

        Args:
            after: Position up to which ends were given before; at first, where the stream began.
            upto: Position that the stream has reached: a watermark, or a number of epochs or items.
        """
        number = math.floor(after / self.step)
        while (end := number * self.step) <= upto:
            if end > after:
                yield end
            number += 1

    def remaining(self, position: float, now: float) -> float:
        """How much of a loss at ``position`` is in the answer of a window at ``now``: 0 or 1."""
        end = math.floor(now / self.step) * self.step
        # The quotient may have been rounded up to the next whole number.
        end = end if end <= now else end - self.step
        return float(position >= self.first_in_question(end))


class Sliding(_Window, frozen=True, tag="sliding"):
    """The last ``length`` of the stream: (now - length, now].

    Guarantee: the losses in any such window add up to at most Θ. The reason: when the j-th failure in
    a window happened, at least j-1 others of that window were counted, so it lost at most Θ/2^j.

    Args:
        length: In units of ``by``, above 0; whole for items and epochs.
        by: "seconds" of event time, "items" (rows of the slot) or "epochs".

    Example:
        >>> Sliding(100, "epochs").remaining(position=7, now=106)
        1.0
        >>> Sliding(100, "epochs").remaining(position=7, now=107)
        0.0
    """

    def remaining(self, position: float, now: float) -> float:
        """How much of a loss at ``position`` is in the answer at ``now``: 0 or 1."""
        return float(position > now - self.length)


class Decaying(_Window, frozen=True, tag="decaying"):
    """All of the stream, with weights that halve every ``length``.

    Guarantee: all slots failing at once lose at most Θ, and each loss fades by half every
    ``length``. This is *per round of failures*: unlike the other windows, rounds that follow each
    other fast pile up, to at most ``piled_up(Θ, gap)`` if ``gap`` lies between them. The paper
    disables adaptation here and states no sum; this is the one that holds.

    Args:
        length: Half-life in units of ``by``, above 0; whole for items and epochs.
        by: "seconds" of event time, "items" (rows of the slot) or "epochs".

    Example:
        >>> Decaying(10, "epochs").piled_up(100.0, gap=10)
        200.0
    """

    def remaining(self, position: float, now: float) -> float:
        """How much of a loss at ``position`` is left in the answer at ``now``: 1 down to 0."""
        return float(0.5 ** (max(0.0, now - position) / self.length))

    def piled_up(self, error: float, gap: float) -> float:
        """Most error ever, if every ``gap`` (in units of ``by``) brings another ``error``."""
        gap = amount("gap", gap, unit=self.by, zero=None, infinite="only one failure")
        # expm1 keeps its digits where a short gap makes the difference tiny.
        return error / -math.expm1(-math.log(2) * gap / self.length)


Window = Hopping | Sliding | Decaying
