"""What goes wrong, and when: drawn from a seed, or written down by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from tether.core.checks import count

if TYPE_CHECKING:
    from tether.simulate.scenario import Scenario

FaultKind = Literal[
    "slot", "node", "rack", "outage", "torn-write", "during-backup", "during-recovery"
]

Outcome = Literal["nothing", "torn", "whole"]
"""What is left of a write whose writer dies: nothing, a part that cannot be read, or all of it."""

SHARES: dict[FaultKind, float] = {
    "slot": 0.50,
    "node": 0.08,
    "rack": 0.01,
    "outage": 0.01,
    "torn-write": 0.12,
    "during-backup": 0.14,
    "during-recovery": 0.14,
}
"""How often each kind comes up in a drawn schedule."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong.

    Args:
        time: Virtual seconds.
        kind: "slot": its resident state and its items in memory are gone. "node", "rack": those of
            all slots there. "outage": the store takes nothing on for a while. "torn-write",
            "during-backup": the slot dies in its next backup, once there is one.
            "during-recovery": the slot dies, and dies again while it recovers.
        target: Number of a slot; the node or rack is the one that the slot is on.
        outcome: What is left of a write that the fault cuts off.
        moment: Where in the write or recovery it strikes, from 0 (at its start) to 1.

    Example:
        >>> Fault(time=1.0, kind="slot", target=3).outcome
        'nothing'
    """

    time: float
    kind: FaultKind
    target: int = 0
    outcome: Outcome = "nothing"
    moment: float = 0.5


def draw_faults(scenario: Scenario, failures: int) -> list[Fault]:
    """That many faults over the time of the stream, from the scenario's seed.

    Example:
        >>> from tether.policies.approximate import Approximate
        >>> from tether.simulate.scenario import Scenario
        >>> scenario = Scenario(copies=4, policy=Approximate(10))
        >>> draw_faults(scenario, 3) == draw_faults(scenario, 3)
        True
    """
    count("failures", failures, unit="failures", least=0)
    dice = np.random.default_rng([scenario.seed, 2])
    end = scenario.rounds * scenario.timing.interval * 1.1
    kinds = list(SHARES)
    drawn = dice.choice(len(kinds), size=failures, p=list(SHARES.values()))
    faults = []
    for which, time in zip(drawn, np.sort(dice.uniform(0, end, failures)), strict=True):
        kind = kinds[which]
        outcomes: tuple[Outcome, ...] = ("nothing", "torn", "whole")
        faults.append(
            Fault(
                time=float(time),
                kind=kind,
                target=int(dice.integers(scenario.slots)),
                outcome="torn" if kind == "torn-write" else outcomes[dice.integers(3)],
                moment=float(dice.uniform(0, 1)),
            )
        )
    return faults
