"""The names of divergences, and the weights of columns in them: what a user may give."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, get_args

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Norm = Literal["l1", "l2", "max", "count"]
"""Name of a divergence. ``count`` is the difference of the numbers of keys."""

DURABLE = 1e15
"""Weight of what must never be lost: a change of one unit is beyond any sensible θ, so it is made
durable with its epoch. It is no measure of an error: what cannot be lost has none of its own."""


def check_norm(norm: str, *, keyed: bool) -> Norm:
    """The norm of that name.

    Raises:
        BadValueError: There is none, or it does not fit a state without keys.
    """
    for known in get_args(Norm):
        if norm == known and (keyed or norm != "count"):
            return known  # type: ignore[no-any-return]
    allowed = [known for known in get_args(Norm) if keyed or known != "count"]
    raise BadValueError(
        f"There is no divergence {norm!r} for this kind of state.",
        do=f"Use one of {', '.join(allowed)}.",
    )


def check_weights(weights: Mapping[str, float] | None, names: Sequence[str]) -> dict[str, float]:
    """Weights as plain floats.

    Raises:
        BadValueError: A weight is negative, not finite, or of an unknown column.
    """
    for name, weight in (weights or {}).items():
        if name not in names or not math.isfinite(weight) or weight < 0:
            raise BadValueError(
                f"The weight {weight!r} of column {name!r} is not usable.",
                why="Weights are finite numbers of at least 0, for numeric columns of the state.",
                do=f"Name columns out of {', '.join(names) or '(none)'}.",
            )
    return {name: float(weight) for name, weight in (weights or {}).items()}
