"""How far live values are from their durable copies, kept up to date per change.

AF-Stream (2019 §3.4.1, table 8) asks for the Manhattan, Euclidean or maximum distance between the
state and its last backup. Recomputing that over the state on every batch would cost more than the
batch, and reading the durable copies of the changed entries would be a large part of that. So at first
each change adds only its own size: by the triangle inequality the state cannot have moved further away
than that. Where values only grow, as counts do, this is already the distance (``l1``). When the bound
has become too large to be of use, and somebody asks for the exact value, the dirty entries are looked at
once; if that shows that the state is indeed nearly that far away, changes are from then on compared with
the durable copies (*precise*), until the next backup.

Guarantee: the reported divergence is never below the true one. Asked exactly, ``l1`` of integers with
weights of 1 is exact (it is summed in 128-bit integers). Sums of floats carry a bound on their own
rounding error, which is added to what is reported and vanishes at the next backup.
"""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.core.numbers import rounded_up
from tether.state.header import PAGE, PEAK, PRECISE, SLACK, SUM_FLOAT, SUM_HIGH, SUM_LOW, Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tether.state.columns import Column
    from tether.state.norms import Norm
    from tether.state.segment import Array

_UNIT = 2.0**-53
# Pairwise summation of n < 2**31 terms, each a rounded difference times a weight, is off by fewer
# than 60 units in the last place; 128 leaves room for the additions around it.
_SUM_ERROR = 128 * _UNIT
_TERM_ERROR = 1 + 8 * _UNIT
_TINY = 2.0**-1073  # largest loss of a product that is too small for a float
_EXACT_FLOATS = 1 << 53
_ROOM = 1 - 2.0**-20  # what is measured afterwards carries a bound on its own rounding
_SMALLEST_STEP, _LARGEST_STEP = 2.0**-900, 2.0**800
_HALF = 0xFFFF_FFFF
_FITS = 1 << 63

Change = tuple["Array | None", "Array", "Array"]
"""Old, new and durable values of one column's changed rows; without old ones, the durable values are
used."""


class _Rule(NamedTuple):
    """How a column counts in the divergence."""

    at: int
    floating: bool
    weight: float
    whole: bool
    """Whether its differences are integers."""

    def view(self, words: Array) -> Array:
        """The column's values out of stored words."""
        return words[:, self.at].view("f8" if self.floating else "i8")


class Divergence:
    """The running distance of one primitive.

    Args:
        norm: Which distance.
        columns: The numeric columns, in the order of storage.
        weights: Factor for each column's differences; columns not named have 1.0, a factor of 0
            leaves a column out.
        page: The primitive's page of the header, where the sums are.
    """

    def __init__(
        self, norm: Norm, columns: Sequence[Column], weights: Mapping[str, float], page: Page
    ) -> None:
        self.norm = norm
        self._page = page
        rules = []
        for c in columns:
            weight = float(weights.get(c.name, 1.0))
            rules.append(_Rule(c.at, c.floating, weight, not c.floating and weight == 1.0))
        self._rules = [rule for rule in rules if rule.weight > 0 and norm != "count"]
        self.all_whole = all(rule.whole for rule in self._rules)
        """Whether all differences are integers."""
        self.columns = {rule.at for rule in self._rules}
        """The columns that count."""
        self.tight = False
        """Whether the sums were computed afresh since the last change, as far as the owner knows."""

    def afresh(self, pairs: Iterable[tuple[Array, Array]], *, narrow: bool) -> Divergence:
        """The same distance with sums of its own, computed from (live, durable) words of rows."""
        other = self._blank()
        for live, durable in pairs:
            changes = {}
            for rule in self._rules:
                mine, theirs = rule.view(live), rule.view(durable)
                changes[rule.at] = (None, mine, theirs)
            other.update(changes, narrow=narrow, infinite=True)
        return other

    def _blank(self) -> Divergence:
        other = copy(self)
        other._page = Page(np.zeros(PAGE, np.int64))
        other._page.words[PEAK] = self._page.words[PEAK]
        return other

    @property
    def precise(self) -> bool:
        """Whether changes are compared with durable values; else only a bound is kept."""
        return bool(self._page.words[PRECISE])

    @precise.setter
    def precise(self, value: bool) -> None:
        self._page.words[PRECISE] = int(value)

    @property
    def exact(self) -> bool:
        """Whether the sums are known to be the distance itself; not so a maximum after a change."""
        return self.tight or (self.precise and self.norm != "max")

    @property
    def stale(self) -> bool:
        """Whether the sums have to be computed afresh."""
        return math.isnan(self._page.floats[SUM_FLOAT])

    def defer(self) -> None:
        """Leave the sums to be computed afresh when they are asked for."""
        self._page.floats[SUM_FLOAT] = math.nan

    def adopt(self, other: Divergence) -> None:
        """Take the sums of another, within an epoch: they are several words."""
        for word in (SUM_LOW, SUM_HIGH, SUM_FLOAT, SLACK):
            self._page.words[word] = other._page.words[word]
        self.tight = True

    def widen(self, changes: Mapping[int, tuple[Array, Array]], *, narrow: bool) -> None:
        """Account for changes by their size alone: no change takes the state further away.

        Args:
            changes: By column: old and new values of the same distinct rows.
            narrow: As for ``update``.
        """
        moved: dict[int, Change] = {at: (None, new, old) for at, (old, new) in changes.items()}
        if self.norm == "l1":
            self.update(moved, narrow=narrow)
            return
        floats = self._page.floats
        if self.norm == "max":
            change = self._blank()
            change.update(moved, narrow=narrow)
            total = floats[SUM_FLOAT] + change.value()
            if not self.all_whole or total >= _EXACT_FLOATS:
                total *= _TERM_ERROR
            floats[SUM_FLOAT] = total
            return
        squares = 0.0
        for rule in self._rules:
            if rule.at in moved:
                _, new, old = moved[rule.at]
                squares += _sum_of_squares(rule, new, old, narrow)
        far = (self.value() + math.sqrt(squares)) * _TERM_ERROR
        # The new sum first: a kill between two words leaves too large a one.
        floats[SUM_FLOAT] = far * far * _TERM_ERROR
        self._set_whole(0)

    def update(
        self, changes: Mapping[int, Change], *, narrow: bool, infinite: bool = False
    ) -> None:
        """Account for new values of some rows.

        Args:
            changes: By column: old, new and durable values of the same distinct rows.
            narrow: Whether sums of differences of the integers surely fit 64 bits.
            infinite: Whether to take care of infinities; without it they ask to compute afresh.
        """
        if self.norm == "max":
            self._raise_maximum(changes, narrow)
            return
        gained = 0
        for rule in self._rules:
            if rule.at not in changes:
                continue
            old, new, durable = changes[rule.at]
            if self.norm == "l1" and rule.whole:
                gained += _whole_sum(new, durable, narrow)
                gained -= 0 if old is None else _whole_sum(old, durable, narrow)
            elif rule.whole and (4 * self._page.words[PEAK]) ** 2 * len(new) < _FITS:
                gained += _whole_squares(old, new, durable)
            else:
                plus = self._sum(rule, new, durable, narrow, infinite=infinite)
                minus = 0.0
                if old is not None:
                    minus = self._sum(rule, old, durable, narrow, infinite=infinite)
                exact = self.norm == "l1" and rule.weight == 1.0
                # Squares of tiny differences become 0, and need slack; where nothing differs, none is
                # needed.
                exact = exact or (not plus and not minus and np.array_equal(new, durable))
                self._add(plus, minus, len(new), 0.0 if exact else len(new) * _TINY)
        if gained:
            self._set_whole(self._get_whole() + gained)

    def of(self, amounts: Array) -> Divergence | None:
        """The same distance with sums of its own, made of what each row adds (see ``per_row``).

        None where these may have been rounded: then the rows must be read again.
        """
        total = float(amounts.max(initial=0.0) if self.norm == "max" else amounts.sum())
        if not self.all_whole or not total < _EXACT_FLOATS:
            return None
        other = self._blank()
        if self.norm == "max":
            other._page.floats[SUM_FLOAT] = total
        else:
            other._set_whole(int(total))
        return other

    def per_row(self, live: Array, durable: Array, *, narrow: bool) -> Array:
        """What each row adds to the sum (``l1``, ``l2``), or its own distance (``max``)."""
        total = np.zeros(len(live))
        for rule in self._rules:
            terms = self._terms(rule, rule.view(live), rule.view(durable), narrow)
            if self.norm == "max":
                np.maximum(total, terms, out=total)
            else:
                total += terms
        return total

    def value(self) -> float:
        """The divergence now, rounded up; NaN if it has to be computed afresh."""
        whole, floats = self._get_whole(), self._page.floats
        if self.norm == "max" or self.stale:
            return floats[SUM_FLOAT]
        total = max(floats[SUM_FLOAT], 0.0) + floats[SLACK]
        if self.norm == "l2":
            total = max(floats[SUM_FLOAT] + whole, 0.0) + floats[SLACK]
            return math.sqrt(total) * _TERM_ERROR if total else 0.0
        if total:
            return (rounded_up(whole) + total) * _TERM_ERROR
        return rounded_up(whole)

    def limits(self, target: float, peak: int, rows: int) -> float:
        """The largest sum over ``per_row`` that keeps ``value`` at or below ``target``."""
        if self.norm == "l2":
            target = target * target
        largest = 2 * peak * max(rows, 1) * max(len(self._rules), 1)
        if self.all_whole and self.norm != "l2" and largest < _EXACT_FLOATS:
            return target
        # Each column's sum carries its own slack, and so do the sums by which rows are chosen.
        return target * (1 - (4 * rows + 512) * (len(self._rules) + 1) * _UNIT)

    def steps(self, allowed: float, rows: int) -> dict[int, int]:
        """To what the floats of so many rows may be rounded, such that all together move by ``allowed``.

        Returns:
            By position of the column, an exponent: multiples of that power of two are near enough.
        """
        rules = [rule for rule in self._rules if rule.floating]
        parts = {"l1": rows * len(rules), "l2": math.sqrt(rows * len(rules))}.get(self.norm, 1)
        found = {}
        for rule in rules if rows else ():
            step = 2 * allowed * _ROOM / (parts * rule.weight)  # the nearest is half a step away
            if _SMALLEST_STEP < step < _LARGEST_STEP:
                found[rule.at] = math.frexp(step)[1] - 1
        return found

    def _terms(
        self, rule: _Rule, live: Array, durable: Array, narrow: bool, *, infinite: bool = True
    ) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            terms = _difference(rule, live, durable, narrow)
        np.abs(terms, out=terms)
        if infinite and rule.floating and not math.isfinite(terms.sum()):
            terms[live == durable] = 0.0  # two infinities of one sign are the same value
        with np.errstate(over="ignore", under="ignore"):
            if rule.weight != 1.0:
                terms *= rule.weight
            if self.norm == "l2":
                terms *= terms
        return terms

    def _sum(
        self, rule: _Rule, live: Array, durable: Array, narrow: bool, *, infinite: bool
    ) -> float:
        if self.norm == "l1" or infinite:
            return float(self._terms(rule, live, durable, narrow, infinite=infinite).sum())
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            terms = _difference(rule, live, durable, narrow)
            if rule.weight != 1.0:
                terms *= rule.weight
            return float(np.einsum("i,i->", terms, terms))  # squares without a copy of them

    def _add(self, plus: float, minus: float, count: int, tiny: float) -> None:
        floats = self._page.floats
        total = floats[SUM_FLOAT] + (plus - minus)
        floats[SUM_FLOAT] = total  # infinities make it NaN, which asks to compute afresh
        if math.isfinite(total):
            # Squares are summed in order, which can lose a unit for each of them.
            error = _SUM_ERROR if self.norm == "l1" else _SUM_ERROR + count * _UNIT
            floats[SLACK] += error * (plus + minus + abs(total)) + tiny

    def _raise_maximum(self, changes: Mapping[int, Change], narrow: bool) -> None:
        largest = self._page.floats[SUM_FLOAT]
        for rule in self._rules:
            if rule.at not in changes or not len(changes[rule.at][1]):
                continue
            _, new, durable = changes[rule.at]
            if narrow and rule.whole:
                differences = new - durable
                term = float(max(int(differences.max()), -int(differences.min())))
            else:
                term = float(self._terms(rule, new, durable, narrow).max())
            if not rule.whole or term >= _EXACT_FLOATS:
                # A product may become 0 by underflow, but only where something differs.
                vanishes = rule.weight != 1.0 and (term > 0 or not np.array_equal(new, durable))
                term = term * _TERM_ERROR + (_TINY if vanishes else 0.0)
            largest = max(largest, term)
        self._page.floats[SUM_FLOAT] = largest

    def _get_whole(self) -> int:
        words = self._page.words
        return (words[SUM_HIGH] << 62) + words[SUM_LOW]

    def _set_whole(self, value: int) -> None:
        words = self._page.words
        words[SUM_HIGH], words[SUM_LOW] = value >> 62, value & ((1 << 62) - 1)


def _whole_sum(live: Array, durable: Array, narrow: bool) -> int:
    if narrow:
        terms = live - durable
        return int(np.add.reduce(np.abs(terms, out=terms)))
    wide = _wide_difference(live, durable)
    return (int((wide >> 32).sum()) << 32) + int((wide & _HALF).sum())


def _whole_squares(old: Array | None, new: Array, durable: Array) -> int:
    """What the sum of squared differences gains, where neither it nor a square can overflow."""
    difference = new - durable
    if old is None:
        return int(np.dot(difference, difference))
    difference += old
    difference -= durable
    return int(np.dot(new - old, difference))  # a² - b² = (a - b)(a + b)


def _sum_of_squares(rule: _Rule, live: Array, durable: Array, narrow: bool) -> float:
    """The sum of squared differences, rounded up by the largest possible rounding error."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        terms = _difference(rule, live, durable, narrow)
        if rule.weight != 1.0:
            terms *= rule.weight
        count = len(terms)
        # Not np.dot, which would start threads.
        total = float(np.einsum("i,i->", terms, terms))
        return total * (1 + (count + 64) * _UNIT) + count * _TINY


def _difference(rule: _Rule, live: Array, durable: Array, narrow: bool) -> Array:
    """Differences as floats; of either sign, or without one."""
    if rule.floating:
        return live - durable
    if narrow:
        return (live - durable).astype(np.float64)
    return _wide_difference(live, durable).astype(np.float64)


def _wide_difference(live: Array, durable: Array) -> Array:
    # The difference of two int64 always fits uint64, so wrapping subtraction gives it exactly.
    return np.where(live > durable, live - durable, durable - live).view(np.uint64)


def sum_up(terms: Iterable[float]) -> float:
    """The smallest float that is not below a sum of numbers of at least 0.

    Example:
        >>> sum_up([1.0, 2.0**-60]) == 1.0 + 2.0**-52
        True
    """
    given = list(terms)
    try:
        total = math.fsum(given)
    except OverflowError:
        return math.inf
    short = math.isfinite(total) and math.fsum([*given, -total]) > 0
    return math.nextafter(total, math.inf) if short else total
