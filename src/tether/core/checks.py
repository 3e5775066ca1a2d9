"""Checks of the numbers that users give, so that a bad one is refused where it is written."""

from __future__ import annotations

import math
from numbers import Real

from tether.core.errors import BadValueError


def amount(name: str, value: object, *, unit: str, zero: str | None, infinite: str | None) -> float:
    """Return ``value`` as a float if it is a usable amount, else say what is wrong with it.

    Args:
        name: The parameter, as the user wrote it.
        value: What the user gave.
        unit: What it is counted in, for the message.
        zero: What 0 means, or None where 0 is not allowed.
        infinite: What infinity means, or None where infinity is not allowed.

    Example:
        >>> amount("max_lost_items", 10, unit="items", zero="exact", infinite=None)
        10.0
    """
    lowest = f"0 ({zero}) or more" if zero else "above 0"
    highest = f"; math.inf means {infinite}" if infinite else ", and finite"
    do = f"Give a number of {unit}, {lowest}{highest}."
    if isinstance(value, bool) or not isinstance(value, Real):
        raise BadValueError(
            f"{name}={value!r} is not a number.", why=f"It is a {type(value).__name__}.", do=do
        )
    number = float(value)
    if math.isnan(number):
        raise BadValueError(
            f"{name} is NaN.",
            why="Nothing compares with NaN, so no bound would hold.",
            do=do,
        )
    if number < 0:
        raise BadValueError(f"{name}={number:g} is negative.", why="It is an amount.", do=do)
    if number == 0 and zero is None:
        raise BadValueError(f"{name} is 0.", why="It must span something.", do=do)
    if math.isinf(number) and infinite is None:
        raise BadValueError(f"{name} is infinite.", why="It must have an end.", do=do)
    return number


def count(name: str, value: object, *, unit: str, least: int = 1) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``least``.

    Example:
        >>> count("copies", 4, unit="slots")
        4
    """
    number = amount(name, value, unit=unit, zero="none", infinite=None)
    if number != int(number) or number < least:
        raise BadValueError(
            f"{name}={value!r} cannot be used.",
            why=f"It counts {unit}: whole, and at least {least}.",
            do=f"Give a whole number of {unit}, {least} or more.",
        )
    return int(number)
