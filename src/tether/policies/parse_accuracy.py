"""An accuracy from a line of text, as the CLI takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.errors import BadValueError
from tether.policies.accuracy import (
    absolute_error,
    heavy_hitters,
    logistic_regression,
    relative_error,
    ripple_join,
)
from tether.policies.parse import parse_number, parse_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.policies.accuracy import Choice

_WISHES: dict[str, tuple[Callable[..., Choice], str, tuple[str, ...]]] = {
    "absolute": (absolute_error, "max_error", ("of", "max_item", "max_lost_items")),
    "relative": (
        relative_error,
        "fraction",
        ("at_least", "of", "max_item", "max_lost_items"),
    ),
    "heavy-hitters": (
        heavy_hitters,
        "",
        ("threshold", "epsilon", "certain_below", "max_item", "max_lost_items"),
    ),
    "join": (
        ripple_join,
        "",
        ("samples", "widening", "max_matches", "max_lost_items", "max_unacked_items"),
    ),
    "regression": (
        logistic_regression,
        "max_distance",
        ("max_step", "max_lost_items"),
    ),
}
"""For each name: the function that derives the budget, its one setting without a keyword, and the
others."""

_SAMPLE = "absolute:max_error=100,of=key"


def parse_accuracy(text: str) -> Choice:
    """Read an accuracy from ``kind:setting=value,setting=value``, and derive its budget.

    Kinds: ``absolute``, ``relative``, ``heavy-hitters``, ``join``, ``regression``; their settings
    are those of the functions of :mod:`tether.policies.accuracy`.

    Example:
        >>> parse_accuracy("absolute:max_error=100,of=key").budget.max_state_error
        100.0
        >>> parse_accuracy("exact")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        tether.core.errors.BadValueError: 'exact' is no kind of accuracy. Why: ...
    """
    name, _, rest = text.strip().partition(":")
    if name not in _WISHES:
        raise BadValueError(
            f"{name!r} is no kind of accuracy.",
            why=f"The kinds are {', '.join(_WISHES)}.",
            do=f"Write for example {_SAMPLE}.",
        )
    derive, first, others = _WISHES[name]
    known = (first, *others) if first else others
    values: dict[str, Any] = {}
    for key, value in parse_settings(rest).items():
        if key not in known:
            raise BadValueError(
                f"{name} has no setting {key!r}.",
                why=f"Its settings are {', '.join(known)}.",
                do=f"Write for example {_SAMPLE}.",
            )
        values[key] = value if key == "of" else parse_number(key, value)
    try:
        return derive(*([values.pop(first)] if first in values else []), **values)
    except TypeError as error:
        raise BadValueError(
            f"{text!r} does not say enough.",
            why=str(error).partition("() ")[2] or str(error),
            do=f"Its settings are {', '.join(known)}.",
        ) from None
