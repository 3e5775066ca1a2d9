"""Exact sums of amounts, and how they become floats: a bound is rounded up, an allowance down.

Sums are of fractions, and are rounded once at the end: with a rounding at each step, sums could end
above a valid bound, or below an actual error.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Exact = Fraction | float
"""A number of at least 0; the float is only ever infinity."""


NOTHING = Fraction(0)

STEP = b"tether.step"
"""Metadata of an Arrow column of floats: all are multiples of two to the power of this."""


def exactly(number: float) -> Exact:
    """A float as an exact number."""
    if not number:  # most slots have lost nothing, and creating a fraction is slow
        return NOTHING
    return math.inf if number == math.inf else Fraction(number)


def times(one: Exact, other: Exact) -> Exact:
    """The product, where 0 times infinity is 0: nothing, however often, is nothing.

    Example:
        >>> times(math.inf, Fraction(0)), times(Fraction(2), math.inf)
        (Fraction(0, 1), inf)
    """
    if not one or not other:
        return NOTHING
    return math.inf if math.inf in (one, other) else one * other


def add_up(parts: Iterable[Exact]) -> Exact:
    """The sum.

    Example:
        >>> add_up([Fraction(1, 3), Fraction(2, 3)]), add_up([math.inf, Fraction(1)]), add_up([])
        (Fraction(1, 1), inf, Fraction(0, 1))
    """
    # Use one denominator, and reduce once at the end: fractions reduce every partial sum, which takes
    # most of the time with thousands of slots.
    above, below = 0, 1
    for part in parts:
        if not part:
            continue
        if not isinstance(part, Fraction):
            return math.inf
        if part.denominator != below:
            common = math.lcm(part.denominator, below)
            above, below = above * (common // below), common
        above += part.numerator * (below // part.denominator)
    return Fraction(above, below)


def rounded_up(exact: Exact) -> float:
    """The smallest float that is not below a number of at least 0.

    Example:
        >>> rounded_up(2**53 + 1) == 2**53 + 2
        True
    """
    if not exact:
        return 0.0
    try:
        result = float(exact)
    except OverflowError:
        return math.inf
    return result if result >= exact else math.nextafter(result, math.inf)


def rounded_down(exact: Exact) -> float:
    """The largest float that is not above a number of at least 0.

    Example:
        >>> rounded_down(Fraction(2**53 + 1)) == 2**53
        True
    """
    try:
        result = float(exact)
    except OverflowError:
        return math.nextafter(math.inf, 0.0)
    return result if result <= exact else math.nextafter(result, 0.0)
