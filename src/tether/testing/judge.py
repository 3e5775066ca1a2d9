"""An independent judge: was any answer further from the truth than the query said it could be?

It shares no code with what it judges, and imports nothing of it. It is given the rows, what the
operator means in plain Python, which failures there were, and what ``bound()`` told after every epoch.
Slow and plain on purpose: exact fractions, one entry at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Exact = Fraction | float
"""An exact number; the float is only ever infinity."""

Entries = Mapping[Any, Any]
"""Numbers by entry."""

Answer = Mapping[str, Entries]
"""All that is judged together, by part. Each part has a measure of its own; their errors add up."""

_DIGITS = 10**40


@dataclass(frozen=True)
class Measure:
    """How far apart two versions of one part of an answer are.

    Args:
        norm: "l1", "l2", "max", or "count": the number of keys that only one of the two has.
        weight: What a difference of 1 counts.
        absent: What an entry that is not there stands for.

    Example:
        >>> Measure("l1").distance({"a": 5, "b": 1}, {"a": 3})
        Fraction(3, 1)
        >>> Measure("count").distance({"a": 5, "b": 1}, {"a": 3})
        Fraction(1, 1)
    """

    norm: str = "l1"
    weight: float = 1.0
    absent: float = 0.0

    def distance(self, one: Entries, other: Entries) -> Exact:
        """The distance; of ``l2`` at most 1e-40 less, and never more."""
        if self.norm == "count":
            return Fraction(len(one.keys() ^ other.keys()))
        off = [Fraction(0)]
        for entry in one.keys() | other.keys():
            a, b = one.get(entry, self.absent), other.get(entry, self.absent)
            if a == b or not self.weight:
                continue
            if not (math.isfinite(a) and math.isfinite(b)):
                return math.inf
            off.append(Fraction(self.weight) * abs(Fraction(a) - Fraction(b)))
        if self.norm == "max":
            return max(off)
        if self.norm == "l1":
            return sum(off, Fraction(0))
        assert self.norm == "l2", self.norm
        return _root(sum((one * one for one in off), Fraction(0)))


@dataclass(frozen=True, kw_only=True)
class Told:
    """An answer, and what ``bound()`` said of it.

    Attributes:
        epoch: The last epoch whose rows are in the answer.
        answer: What the query holds, or gave.
        spent: The most that the answer can be wrong by.
        worst_now: The most that it would be wrong by, if all slots died now.
        ceiling: The most that it can ever be wrong by.
        items_lost: Items that were lost; each is an error of at most ``alpha``.
    """

    epoch: int
    answer: Answer
    spent: float
    worst_now: float = math.inf
    ceiling: float = math.inf
    items_lost: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Something that went wrong, as the schedule has it.

    Attributes:
        epoch: The first epoch whose answer can feel it.
        loses: Whether it can take state away. A killed worker cannot: resident state is not in it.
        unforeseen: Whether nobody could tell before what it would cost: it spoils what is durable, or
            lets another policy take over.
        what: In words.
    """

    epoch: int
    loses: bool = True
    unforeseen: bool = False
    what: str = ""


@dataclass(frozen=True)
class Outside:
    """A promise that was broken."""

    epoch: int
    error: float
    allowed: float
    why: str

    def __str__(self) -> str:
        return f"epoch {self.epoch}: {self.why}: off by {self.error:g}, told {self.allowed:g}"


@dataclass(frozen=True)
class Verdict:
    """What the judge found.

    Attributes:
        looked: Answers that were judged.
        outside: Promises that were broken; none, if all is well.
        looseness: For each answer that was wrong: how many times the error ``bound()`` told.
    """

    looked: int
    outside: list[Outside] = field(default_factory=list)
    looseness: list[float] = field(default_factory=list)


def judge(
    rows: Sequence[Any],
    meaning: Callable[[Sequence[Any]], Iterable[Answer]],
    failures: Sequence[Failure],
    told: Iterable[Told],
    measures: Mapping[str, Measure],
    *,
    alpha: float = 0.0,
    rounding: float = 0.0,
) -> Verdict:
    """Hold every answer against the truth.

    What must hold, for each answer: it is off by no more than was said of it (``spent``, and α for each
    lost item). It is right where nothing was lost. What was said is no more than was ever promised
    (``ceiling``). And no failure cost more than the answer before was said to risk (``worst_now``), as
    long as that could be foreseen.

    Args:
        rows: The rows of each epoch, in the order in which they were given.
        meaning: From these to the right answer after each epoch, in plain Python.
        failures: What went wrong, and when.
        told: What the query answered and told, in order. An epoch may come again: when it was run again.
        measures: How far answers are apart, for each part.
        alpha: Most error that one lost item brings.
        rounding: Most by which a right answer may be off, where floats are added in some other order.

    Example:
        >>> def counts(epochs):
        ...     seen = {}
        ...     for keys in epochs:
        ...         for key in keys:
        ...             seen[key] = seen.get(key, 0) + 1
        ...         yield {"seen": dict(seen)}
        >>> answers = [
        ...     Told(epoch=0, answer={"seen": {"a": 2}}, spent=0),
        ...     Told(epoch=1, answer={"seen": {"a": 1, "b": 1}}, spent=1),
        ... ]
        >>> lost = [Failure(epoch=1, what="an executor died")]
        >>> print(*judge([["a", "a"], ["b", "a"]], counts, lost, answers, {"seen": Measure()}).outside)
        epoch 1: the answer is outside its bound: off by 2, told 1
    """
    truths = list(meaning(rows))
    found, loose, looked = [], [], 0
    before: Told | None = None
    for now in told:
        looked += 1
        error = distance(truths[now.epoch], now.answer, measures)
        if error <= rounding:
            error = Fraction(0)
        spent = _exact(now.spent) + _times(now.items_lost, alpha)
        if error > spent:
            found.append(_outside(now, error, spent, "the answer is outside its bound"))
        if error and not any(one.loses and one.epoch <= now.epoch for one in failures):
            found.append(_outside(now, error, 0, "the answer is wrong, and nothing was lost"))
        if now.spent > now.ceiling:
            why = "more was spent than was ever promised"
            found.append(_outside(now, now.spent, now.ceiling, why))
        surprised = any(one.unforeseen and one.epoch <= now.epoch for one in failures)
        if before is not None and before.epoch + 1 == now.epoch and not surprised:
            risk = _exact(before.worst_now) + _times(now.items_lost, alpha)
            if error > risk:
                found.append(_outside(now, error, risk, "more was lost than was at risk"))
        if error:
            loose.append(float(spent / error) if error != math.inf else 1.0)
        before = now
    return Verdict(looked, found, loose)


def distance(one: Answer, other: Answer, measures: Mapping[str, Measure]) -> Exact:
    """How far two answers are apart: the sum over their parts."""
    total: Exact = Fraction(0)
    for part in one.keys() | other.keys():
        total += measures[part].distance(one.get(part, {}), other.get(part, {}))
    return total


def _root(square: Fraction) -> Fraction:
    scaled = math.isqrt(square.numerator * _DIGITS**2 // square.denominator)
    return Fraction(scaled, _DIGITS)


def _exact(value: float) -> Exact:
    return math.inf if value == math.inf else Fraction(value)


def _times(items: float, each: float) -> Exact:
    return _exact(items) * _exact(each) if items and each else Fraction(0)


def _outside(now: Told, error: Exact, allowed: Exact, why: str) -> Outside:
    return Outside(now.epoch, float(error), float(allowed), why)
