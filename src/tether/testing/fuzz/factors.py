"""How much an error of a stage can grow in the next: what operators of random programs declare.

A factor that is too small would be found by the judge; one that is infinite leaves it nothing to
find. So it is worked out wherever there is one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tether.testing.fuzz.program import Stage, State

_FINER = {"l1": ("l1", "l2", "max"), "l2": ("l2", "max"), "max": ("max",)}
"""By a sender's norm, those of a receiver in which an error is no larger."""


def factor_between(before: Stage, after: Stage) -> float:
    """Most error that one unit of error in ``before`` can bring into ``after``; infinite if not known.

    Of totals the newest, largest or smallest value of each key is wrong by at most what the total had
    lost by then. Others are not known: totals that are added, and those of a state that is cleared,
    of which some come that should not; and errors that came to ``before``, if it sends its rows on.
    """
    if before.emits == "nothing":
        return 0.0
    if before.emits != "totals":
        return math.inf
    sent = before.states[0]
    cleared = any(step.what == "clear" and step.state == sent.name for step in before.steps)
    meet = bool(after.key) or after.slots == 1  # a total's ``u`` goes by its ``k``
    if cleared or not meet:
        return math.inf
    return math.fsum(_into(sent, state, after) for state in after.states)


def _into(sent: State, state: State, after: Stage) -> float:
    steps = [step for step in after.steps if step.state == state.name and step.on == "rows"]
    # Totals have the mark 0. A step for rows of another mark never takes them.
    taken = [step for step in steps if step.mark is None]
    by_key = state.kind in ("vector", "matrix") or (state.kind == "table" and "k" in state.keys)
    whole = {"put", "maximum", "minimum"}
    if not taken:
        return 0.0
    if not by_key or any(step.what not in whole for step in taken):
        return math.inf
    if state.divergence not in _FINER.get(sent.divergence, ()):
        return math.inf
    return state.weight / sent.weight
