"""Where a slot stands in its query: what its share of the budget depends on."""

from __future__ import annotations

from typing import Literal

import msgspec

from tether.core.checks import amount, count
from tether.core.errors import BadValueError


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a slot stands in its query: what its share of the budget depends on.

    ``sharers`` and ``amplification`` are for errors of state: Θ. ``position``, ``length`` and
    ``fan_out`` are for items: L and Γ. In a graph that is no simple chain, let ``length`` be the
    number of all its operators, let ``position`` be ``length`` less the longest way (in operators) to
    an end of the graph, and count into ``fan_out`` that one output goes to several operators. Both
    only make shares smaller.

    Example:
        >>> Placement(copies=4, sharers=2, amplification=3.0).copies
        4
    """

    copies: int = 1
    """n: parallel copies (slots) of the operator."""
    position: int = 1
    """i: position of the operator in its pipeline, 1 is the first."""
    length: int = 1
    """m: number of operators in the pipeline."""
    fan_out: float = 1.0
    """β: most output items that one input item can cause, in this operator or one after it."""
    errors_of_copies: Literal["add", "max"] = "add"
    """How the state errors of the copies make up the operator's: they "add" (always safe), or the
    largest counts ("max": true only for a ``max`` divergence of copies that share no entry)."""
    sharers: int = 1
    """Operators, this one included, that share Θ because their errors can meet in one state; see
    :mod:`tether.core.amplification`."""
    amplification: float = 1.0
    """Largest factor by which one unit of error of this operator counts in any state of the query, its
    own included; so at least 1."""

    def __post_init__(self) -> None:
        count("copies", self.copies, unit="slots")
        count("length", self.length, unit="operators")
        count("position", self.position, unit="operators")
        amount("fan_out", self.fan_out, unit="outputs per item", zero="none", infinite=None)
        count("sharers", self.sharers, unit="operators")
        if not self.amplification >= 1:
            raise BadValueError(
                f"amplification={self.amplification} is not 1 or more.",
                why="An error counts in the operator's own state at least as it is.",
                do="Give the largest factor with which an error of the operator counts anywhere.",
            )
        if self.position > self.length:
            raise BadValueError(
                f"position={self.position} is beyond length={self.length}.",
                why="A pipeline's operators are numbered from 1 to its length.",
                do="Give the operator's place in the pipeline, and the number of its operators.",
            )
