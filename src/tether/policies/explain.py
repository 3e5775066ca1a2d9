"""What a policy will do, in words and numbers: what ``tether run --explain`` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tether.core.windows import Decaying, Hopping
from tether.policies.approximate import Approximate

if TYPE_CHECKING:
    from tether.core.amplification import Amplification
    from tether.core.placement import Placement
    from tether.policies.policy import Policy


def explain(policy: Policy, placement: Placement) -> tuple[str, ...]:
    """How the budget becomes a threshold for each slot, one step a line.

    Example:
        >>> from tether.core.placement import Placement
        >>> for line in explain(Approximate(1000), Placement(copies=5)): print(line)
        All failures together may cost Θ = 1,000 of state.
        5 slots share it, so each may lose 1,000 / 5 = 200 in all its failures.
        Half of that is for the first one: a slot is backed up when it has drifted by more than θ = 100.
        After each loss θ is halved (50, 25, ...): 100 + 50 + 25 + ... is never more than 200.
    """
    if not isinstance(policy, Approximate):
        return (policy.about or f"{policy.name} has no thresholds.",)
    if not policy.keeps_backups:
        return ("max_state_error is infinite: state is never backed up, and a loss loses all.",)
    whole, share = policy.max_state_error, _share(policy, placement)
    lines = [f"All failures together may cost Θ = {_n(whole)} of state."]
    weight = placement.sharers * placement.amplification
    part = whole / weight
    if weight > 1:
        times = "once" if placement.amplification == 1 else f"{_n(placement.amplification)} times"
        lines.append(
            f"Errors of {placement.sharers} operators can meet in one state, where one of this "
            f"operator counts {times} at most: its part is {_n(whole)} / {_n(weight)} = {_n(part)}."
        )
    if placement.errors_of_copies == "max":
        lines.append(
            f"No two of the {placement.copies} slots share an entry, and the worst entry counts: each "
            f"slot may lose all of it, {_n(share)}."
        )
    else:
        lines.append(
            f"{placement.copies} slots share it, so each may lose {_n(part)} / {placement.copies} = "
            f"{_n(share)} in all its failures."
        )
    return (*lines, *_thresholds(policy, placement, share))


def explain_spread(amplification: Amplification) -> tuple[str, ...]:
    """What is, and what is not, promised where errors pass from operator to operator.

    Example:
        >>> from tether.core.amplification import amplification_of
        >>> known = amplification_of({"users": 1.0, "top": 1.0}, {("users", "top"): 2.0})
        >>> print(*explain_spread(known))
        An error of 'users' counts 2 times at most in 'top'.
        >>> not_known = amplification_of({"max": 1.0, "sum": 1.0}, {("max", "sum"): math.inf})
        >>> for line in explain_spread(not_known): print(line)
        How much an error of 'max' can grow in 'sum' is not known.
        So nothing is promised for 'sum' once 'max' has lost something.
        Θ still bounds what each operator itself loses.
    """
    names = amplification.operators
    lines = []
    for source in (name for name in names if name in amplification.losing):
        for target in names:
            factor = amplification.factor(source, target)
            if factor in (0, math.inf) or (source == target and factor == 1):
                continue
            where = "in its own state" if source == target else f"in {target!r}"
            lines.append(
                f"An error of {source!r} counts {_n(float(factor))} times at most {where}."
            )
    for sender, receiver in amplification.unknown:
        where = "with later rows" if sender == receiver else f"in {receiver!r}"
        lines.append(f"How much an error of {sender!r} can grow {where} is not known.")
    lines += [
        f"A loop brings an error of {name!r} back undiminished, again and again."
        for name in amplification.endless
    ]
    for name in names:
        if causes := amplification.unbounded_by(name):
            who = " or ".join(map(repr, causes))
            lines.append(f"So nothing is promised for {name!r} once {who} has lost something.")
    if any(amplification.unbounded_by(name) for name in names):
        lines.append("Θ still bounds what each operator itself loses.")
    return tuple(lines)


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
        if isinstance(policy.window, Hopping) and policy.window.every is not None:
            when = "when the last window that it is in has ended"
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


def _n(number: float) -> str:
    return f"{number:,.10g}" if math.isfinite(number) else "infinite"
