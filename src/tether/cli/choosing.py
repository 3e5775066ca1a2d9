"""From ``--policy`` or ``--accuracy`` to a policy, and how its thresholds come about."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from tether.core.errors import BadValueError
from tether.core.placement import Placement
from tether.declared import errors_of_copies
from tether.policies.explain import explain
from tether.policies.parse import parse_policy
from tether.policies.parse_accuracy import parse_accuracy

if TYPE_CHECKING:
    from tether.operator import Operator
    from tether.policies.policy import Policy


class Chosen(NamedTuple):
    """A policy, and why it is this one."""

    policy: Policy
    divergence: str | None
    """The divergence in which the state must be measured; None where the user may choose."""
    because: tuple[str, ...]


def choose(policy: str, accuracy: str | None, *, only: str | None = None) -> Chosen:
    """The policy that the user asked for, directly or by the accuracy that it must give.

    Args:
        policy: As ``parse_policy`` takes it.
        accuracy: As ``parse_accuracy`` takes it; it then decides.
        only: The one divergence that the operator has, if there is only one.

    Raises:
        BadValueError: Both were given, or the accuracy is of another divergence.
    """
    if accuracy is None:
        return Chosen(parse_policy(policy), None, ())
    if policy != "no-tolerance":
        raise BadValueError(
            "Both --policy and --accuracy were given.",
            why="An accuracy decides the policy.",
            do="Leave one of them out.",
        )
    choice = parse_accuracy(accuracy)
    if only is not None and choice.divergence != only:
        raise BadValueError(
            f"That accuracy asks for the divergence {choice.divergence}.",
            why=f"This operator's state is measured as {only}.",
            do="For an error of each key write absolute:max_error=100,of=key.",
        )
    return Chosen(choice.policy(), choice.divergence, choice.because)


def default_slots(master: str) -> int:
    """How many slots Spark would give an operator on a local master; 2 where that is not known."""
    found = re.fullmatch(r"local\[(\d+|\*)(?:,\d+)?\]", master)
    if found is None:
        return 2
    return (os.cpu_count() or 2) if found[1] == "*" else int(found[1])


def show_derivation(
    chosen: Chosen, operator: Operator, key: list[str], slots: int, *, as_json: bool
) -> None:
    """Print the way from the wish to the threshold of each slot."""
    # As a table of its own key, which these operators keep; the input's types are not known yet.
    table = {"keys": key, "divergence": operator.parameters().get("divergence")}
    placement = Placement(copies=slots, errors_of_copies=errors_of_copies(operator, key, [table]))
    lines = [*chosen.because, *explain(chosen.policy, placement)]
    if as_json:
        theta = chosen.policy.threshold(chosen.policy.initial(), placement)
        print(json.dumps({"derivation": lines, "theta": theta, "slots": slots}))
        return
    for number, line in enumerate(lines, 1):
        print(f"{number}. {line}")
