"""What a policy will do, in words and numbers: what ``tether run --explain`` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tether.core.approximate import Approximate
from tether.core.thresholds import amplification
from tether.core.windows import Decaying, Hopping

if TYPE_CHECKING:
    from tether.core.policy import Placement, Policy


def explain(policy: Policy, placement: Placement) -> tuple[str, ...]:
    """How the budget becomes a threshold for each slot, one step a line.

    Example:
        >>> from tether.core.policy import Placement
        >>> for line in explain(Approximate(1000), Placement(copies=5)): print(line)
        All failures together may cost Θ = 1,000 of state.
        5 slots share it, so each may lose 1,000 / 5 = 200 in all its failures.
        Half of that is for the first one: a slot is backed up when it has drifted by more than θ = 100.
        After each loss θ is halved (50, 25, ...): 100 + 50 + 25 + ... is never more than 200.
    """
    if not isinstance(policy, Approximate):
        return (_EXACT.get(policy.name, f"{policy.name} has no thresholds."),)
    if not policy.keeps_backups:
        return ("max_state_error is infinite: state is never backed up, and a loss loses all.",)
    whole, share = policy.max_state_error, _share(policy, placement)
    lines = [f"All failures together may cost Θ = {_n(whole)} of state."]
    weight = placement.length * amplification(placement)
    if weight > 1:
        lines.append(
            f"The operator is number {placement.position} of {placement.length}, and an error of it "
            f"can count {_n(float(amplification(placement)))} times at the end: its part is "
            f"{_n(whole)} / {_n(float(weight))} = {_n(whole / float(weight))}."
        )
    if placement.errors_of_copies == "max":
        lines.append(
            f"No two of the {placement.copies} slots share a key, and the worst key counts: each "
            f"slot may lose all of it, {_n(share)}."
        )
    else:
        part = whole / float(weight)
        lines.append(
            f"{placement.copies} slots share it, so each may lose {_n(part)} / {placement.copies} = "
            f"{_n(share)} in all its failures."
        )
    return (*lines, *_thresholds(policy, placement, share))


def _thresholds(policy: Approximate, placement: Placement, share: float) -> list[str]:
    theta = policy.threshold(policy.initial(), placement)
    if isinstance(policy.window, Decaying):
        return [
            f"Losses fade by half every {_n(policy.window.length)} {policy.window.by}, so θ is all of "
            f"it, {_n(theta)}, and is not halved; failures in quick succession can pile up."
        ]
    if theta == 0:
        return ["θ = 0: every change is backed up before its epoch counts; nothing is ever lost."]
    lines = [
        f"Half of that is for the first one: a slot is backed up when it has drifted by more than "
        f"θ = {_n(theta)}.",
        f"After each loss θ is halved ({_n(theta / 2)}, {_n(theta / 4)}, ...): {_n(theta)} + "
        f"{_n(theta / 2)} + {_n(theta / 4)} + ... is never more than {_n(share)}.",
    ]
    if policy.window is not None:
        when = "at the window's end" if isinstance(policy.window, Hopping) else "as it leaves"
        lines.append(
            f"The bound is that of one window of {_n(policy.window.length)} {policy.window.by}: what a "
            f"loss took from θ comes back {when}."
        )
    if policy.early < 1:
        lines.append(f"Writing starts in the background at {_n(policy.early * theta)}.")
    return lines


def _share(policy: Approximate, placement: Placement) -> float:
    theta = policy.threshold(policy.initial(), placement)
    return theta if isinstance(policy.window, Decaying) else 2 * theta


_EXACT = {
    "mini-batch": "Everything an epoch changed is durable before the epoch counts: exact.",
    "no-tolerance": "Nothing is backed up: a loss loses all.",
    "barrier": "A snapshot of all slots every interval; after a loss the source is read again from "
    "the last complete one: exact.",
    "upstream-backup": "Every row is durable before it is used, and is used again after a loss: exact.",
}


def _n(number: float) -> str:
    return f"{number:,.10g}" if math.isfinite(number) else "infinite"
