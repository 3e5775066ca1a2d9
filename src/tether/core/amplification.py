"""How far an error spreads: from the operator that lost state into every state of the query.

An operator that has lost state is wrong by at most what it lost, as long as later rows do not enlarge
the difference. What it sends on is made from that state, so the operators after it become wrong
too. By how much, for one unit of the sender's error, is a factor that each receiver declares: the
Lipschitz constant of the way from the one state to the other, in units of both divergences. It has
nothing to do with β, the number of outputs of an item: the sum of a million totals, each wrong by 1,
is wrong by a million, one row in and one row out.

Factors along a way multiply, and what comes by several ways adds up (a *diamond*). A loop of gain a
brings an error back as a, a², …: 1/(1 - a) in all if a < 1, and without limit otherwise. All of it
is one sum over all walks from operator to operator, and is computed here exactly, with Kleene's
algorithm over the numbers from 0 to ∞. Time does not matter: a factor is for errors at any time
before, so a loop's delay changes nothing (the small-gain theorem).

A factor that is not known is ∞, and so is whatever it leads to: for such an operator there is no
promise once one before it has lost something. 0 · ∞ is 0: an operator that cannot be wrong harms nobody.
But state may differ by 0 in its divergence and not be the same, as a table of which only the number of
keys counts; so where a factor is not known, each loss counts, whatever it has cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.core.numbers import Exact, add_up, exactly, rounded_up, times

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tether.core.placement import Placement

Link = tuple[str, str]
"""Names of a sender and of the operator that receives its rows or its feedback."""


@dataclass(frozen=True)
class Amplification:
    """The error that one unit of state lost by an operator can cause in each operator of the query.

    Made by ``amplification_of``.

    Example:
        >>> spread = amplification_of({"users": 1.0, "countries": 1.0}, {("users", "countries"): 3.0})
        >>> spread.factor("users", "countries"), spread.factor("countries", "users")
        (Fraction(3, 1), Fraction(0, 1))
        >>> spread.sharers("users"), spread.weight("users"), spread.weight("countries")
        (2, 3.0, 1.0)
    """

    operators: tuple[str, ...]
    losing: frozenset[str]
    """Operators that keep state whose loss counts."""
    factors: Mapping[Link, Exact]
    unknown: tuple[Link, ...]
    """Links whose factor is not known. An operator is named twice where its own later rows may enlarge
    an error."""
    endless: tuple[str, ...]
    """Operators on a loop whose gain is 1 or more, so that errors do not fade."""

    def factor(self, source: str, target: str) -> Exact:
        """Largest error in the state of ``target`` that one unit lost by ``source`` can cause."""
        return self.factors.get((source, target), Fraction(0))

    def unbounded_by(self, target: str) -> tuple[str, ...]:
        """Operators whose losses can cause an unlimited error in ``target``, as far as is known."""
        return tuple(
            name
            for name in self.operators
            if name in self.losing and self.factor(name, target) == math.inf
        )

    def placed(self, name: str, place: Placement, *, shared: bool) -> Placement:
        """The place of an operator's slots, with its share of Θ.

        Args:
            name: The operator.
            place: All else that is known of the place.
            shared: Whether all operators share one budget; else this one has its own, for what its
                own losses come to in its own state.
        """
        if shared:
            return replace(place, sharers=self.sharers(name), amplification=self.weight(name))
        own = self.factor(name, name)
        known = rounded_up(own) if 1 <= own < math.inf else 1.0
        return replace(place, amplification=known)

    def sharers(self, source: str) -> int:
        """Number of operators that share a budget with this one, as their errors can meet."""
        return max((len(self._known_in(target)) for target in self._known_from(source)), default=1)

    def weight(self, source: str) -> float:
        """Largest known factor by which an error of the operator counts in any state.

        If it is not known for its own state, this is 1: then only its losses themselves are bounded.
        """
        known = [self.factor(source, target) for target in self._known_from(source)]
        return rounded_up(max(known, default=Fraction(1)))

    def _known_from(self, source: str) -> list[str]:
        if source not in self.losing:
            return []
        return [name for name in self.operators if self._is_known(source, name)]

    def _known_in(self, target: str) -> list[str]:
        return [name for name in self.losing if self._is_known(name, target)]

    def _is_known(self, source: str, target: str) -> bool:
        return 0 < self.factor(source, target) < math.inf


def amplification_of(
    growths: Mapping[str, float],
    links: Mapping[Link, float],
    *,
    of_losses: Mapping[Link, float] | None = None,
    losing: Collection[str] | None = None,
) -> Amplification:
    """Sum up what operators have declared, over all ways through the query.

    Args:
        growths: By operator, most that one unit of its own loss comes to in its own state through
            later rows: 1 where they never enlarge a difference.
        links: By sender and receiver, most that one unit of the sender's error brings into the
            receiver. Feedback included.
        of_losses: The same for what the sender has lost itself, where that is another factor: the first
            step of every way. An error that has come to an operator from another is not its loss.
        losing: Operators that keep state whose loss counts; all by default.

    Example:
        >>> loop = amplification_of({"model": 1.0, "mean": 1.0},
        ...                         {("model", "mean"): 0.5, ("mean", "model"): 1.0})
        >>> loop.factor("model", "model"), loop.endless
        (Fraction(2, 1), ())
        >>> amplification_of({"a": 1.0, "b": 1.0}, {("a", "b"): math.inf}).unbounded_by("b")
        ('a',)
    """
    names = tuple(growths)
    can_lose = frozenset(names if losing is None else losing)
    first = {**links, **(of_losses or {})}
    walks, endless = _over_all_walks(names, links)

    def comes_to(source: str, target: str) -> Exact:
        """The error in ``target`` from one unit that ``source`` loses, before later rows enlarge it."""
        further = (
            times(exactly(factor), walks[receiver, target])
            for (sender, receiver), factor in first.items()
            if sender == source
        )
        return add_up([Fraction(int(source == target)), *further])

    reached = {
        (source, target): comes_to(source, target) for source in can_lose for target in names
    }
    # Errors that arrive, from other operators or around a loop, are passed on by ``links``.
    got = {
        name
        for name in names
        if any(reached[source, name] > (source == name) for source in can_lose)
    }
    unknown = [(name, name) for name in names if name in can_lose and growths[name] == math.inf]
    unknown += [
        link
        for link in first
        if (links.get(link) == math.inf and link[0] in got)
        or (first[link] == math.inf and link[0] in can_lose)
    ]
    factors = {
        (source, target): times(exactly(growths[source]), amount)
        for (source, target), amount in reached.items()
        if amount
    }
    return Amplification(
        names, can_lose, factors, tuple(unknown), tuple(name for name in endless if name in got)
    )


def _over_all_walks(
    names: tuple[str, ...], links: Mapping[Link, float]
) -> tuple[dict[Link, Exact], list[str]]:
    """The sum of the products of factors over all walks, the empty one included (Kleene)."""
    sums: dict[Link, Exact] = {
        (source, target): exactly(links.get((source, target), 0.0))
        for source in names
        for target in names
    }
    endless = []
    for over in names:
        gain = sums[over, over]
        if 1 <= gain < math.inf:
            endless.append(over)
        around: Exact = 1 / (1 - gain) if gain < 1 else math.inf
        into = {source: times(sums[source, over], around) for source in names}
        out = {target: sums[over, target] for target in names}
        for source in names:
            for target in names:
                sums[source, target] += times(into[source], out[target])
    for name in names:
        sums[name, name] += 1
    return sums, endless
