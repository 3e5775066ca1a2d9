"""The policy of DPC: always an answer within X, marked where input was missing, and corrected later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from tether.core.checks import amount
from tether.core.errors import BadValueError
from tether.policies.mini_batch import MiniBatch
from tether.protocols.consistency import Handling

if TYPE_CHECKING:
    from collections.abc import Mapping

Failure = Literal["process", "delay"]
Stabilization = Literal["process", "delay", "suspend"]
Reconcile = Literal["checkpoint", "undo"]


@dataclass(frozen=True, slots=True)
class Available(MiniBatch):
    """Answer within X although an input is missing; correct the answer when it is back.

    For queries over ``tether.subscribe``. A bucket of tuple time that has waited αX for an input is
    processed without it: its results are *tentative*. When the input is back, the bucket is processed
    again, whole, and its *stable* results take the place of the tentative ones. Stable state is backed
    up in every epoch, as under ``MiniBatch``.

    Guarantee: stable rows are those of a run in which nothing ever failed, and none is ever withdrawn
    (DPC 2005 §3.5, properties 3 and 4). A row's result, of either kind, comes within X, whatever inputs
    fail and when, as long as an epoch takes at most a third of (1 - α)X and ``stabilization`` is not
    ``"suspend"``. Where one input fails once, an epoch may take (1 - α)X, and a third of what a bucket
    leaves of X.

    Args:
        delay: X, seconds: the longest that a row may wait for its first answer.
        alpha: α, the part of X that rows wait for a missing input; the rest is for processing.
        failure: While an input is missing: ``"process"``: buckets are processed, after the first wait,
            as soon as the other inputs have ended them. ``"delay"``: each waits nearly αX, and fewer
            rows are tentative.
        stabilization: The same for new buckets while late ones are corrected. ``"suspend"``: new ones
            wait until all are corrected, which may take longer than X.
        reconcile: How the state of before the first tentative bucket is kept. ``"checkpoint"``:
            tentative buckets are processed on a copy of it, in memory. ``"undo"``: in place, and what
            they changed is rolled back; no copy is made before corrections begin, and with
            ``"suspend"`` none at all.

    Example:
        >>> policy = Available(delay=3.0)
        >>> policy.handling.wait
        2.7
        >>> Available(delay=3.0, alpha=1)
        Traceback (most recent call last):
        tether.core.errors.BadValueError: alpha=1 leaves no time to process a row within X. What to do: \
Give a number below 1.
    """

    delay: float
    alpha: float = 0.9
    failure: Failure = "process"
    stabilization: Stabilization = "process"
    reconcile: Reconcile = "checkpoint"

    about: ClassVar[str] = (
        "An answer within X although an input is missing, corrected when it is back."
    )

    def __post_init__(self) -> None:
        amount("delay", self.delay, unit="seconds", zero=None, infinite=None)
        part = amount("alpha", self.alpha, unit="parts of X", zero=None, infinite=None)
        if part >= 1:
            raise BadValueError(
                f"alpha={part:g} leaves no time to process a row within X.",
                do="Give a number below 1.",
            )
        _among("failure", self.failure, get_args(Failure))
        _among("stabilization", self.stabilization, get_args(Stabilization))
        _among("reconcile", self.reconcile, get_args(Reconcile))

    @property
    def name(self) -> str:
        """Word by which the policy is known."""
        return "available"

    @property
    def availability(self) -> Available:
        """The policy itself is the setting."""
        return self

    @property
    def handling(self) -> Handling:
        """What the consistency manager must know of it."""
        return Handling(
            wait=round(self.alpha * self.delay, 9),
            failure=self.failure,
            stabilization=self.stabilization,
            spare=round((1 - self.alpha) * self.delay, 9),
        )

    def describe(self) -> Mapping[str, object]:
        """Settings as plain values; X and how failures are handled may change from start to start."""
        return {"policy": self.name}


def _among(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        words = ", ".join(f'"{word}"' for word in known[:-1])
        raise BadValueError(f"{name}={value!r} is not known.", do=f'Use {words} or "{known[-1]}".')
