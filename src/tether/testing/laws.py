"""The laws that every state must keep, and the error that says which one was broken."""

from __future__ import annotations

from tether.core.errors import TetherError

DISTANCE = "the divergence is a distance: a number of at least 0, and 0 to the state's own backup"
SYMMETRY = "differences in both directions count alike"
TRIANGLE = (
    "the divergence obeys the triangle inequality, so that small drifts cannot hide a large one"
)
FUNCTION = "the divergence depends only on the state and the backup"
NEVER_TOO_SMALL = "the divergence is never under-reported"
INCREASING = "the divergence does not shrink without a backup"
IMAGE = "backing up does not change the state, and gives the same bytes for the same state"
ROUND_TRIP = "recovering from a backup gives the state that was backed up"
IDEMPOTENT = "recovering twice is the same as recovering once"
ROLLBACK = "rolling back gives exactly the state from before the epoch"
WITHIN = "after an export the divergence is at most its target"
REPLAY = "the same rows give the same state and the same output"
REPEATS = (
    "who promises to repeat comes to the same state in whatever order the rows of an epoch come"
)
MERGES = "who promises that epochs merge comes to the same state from their rows as one epoch"
DISJOINT = "who promises disjoint slots never keeps one entry in two of them"
GROWTH = "later rows do not enlarge what was lost by more than the declared growth"
SILENT = "who promises not to send what it loses sends the same rows after a loss as without it"
SPREAD = (
    "no state is further from that of a run without losses than what was lost, there and in the "
    "operators before it, times the declared factors"
)
OUTLIVES = "all that an operator remembers is in its declared state"


class LawBrokenError(TetherError, AssertionError):
    """A state or operator of the user's broke a law of fault tolerance.

    Attributes:
        law: The law, in words.
        seed: The seed with which it happens again.
    """

    code = "law-broken"

    def __init__(
        self, what: str, *, why: str = "", do: str = "", law: str = "", seed: int = -1
    ) -> None:
        super().__init__(what, why=why, do=do)
        self.law, self.seed = law, seed


def broken(who: str, law: str, seed: int, detail: str) -> LawBrokenError:
    """The error for a broken law.

    Example:
        >>> print(broken("Counter", DISTANCE, 7, "It gave -1.").what)
        Counter broke a law (seed 7): the divergence is a distance: a number of at least 0, ...
    """
    return LawBrokenError(
        f"{who} broke a law (seed {seed}): {law}.",
        why=detail,
        do=f"Run the check again with seed={seed}, schedules=1: it takes the same steps.",
        law=law,
        seed=seed,
    )
