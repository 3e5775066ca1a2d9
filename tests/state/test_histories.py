"""Any history of any primitives: what is told covers what a loss would cost, then and ever after.

Several primitives share a slot, are changed by all their operations, cleared, backed up in part, as a
whole, or in the background, settled or given up, rolled back, and attached to by other processes.
After every step each one is compared with a plain dict, and its divergence with the distance to
what the frames written so far amount to. Now and then a *survivor* is made of these frames, as a loss
would leave it. It is given the same changes as the state from then on, and must never be
further away than the divergence was when it was made: else the error of a loss would grow unseen.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.state.histories import CLEARED, GIVEN, SIZE, History

from tether.state import sets

STEPS = 40
WEIGHTS = {
    "change": 20,
    "clear": 5,
    "shrink": 1,
    "export": 5,
    "begin_export": 6,
    "end_export": 6,
    "next_epoch": 4,
    "try_again": 2,
    "lose": 3,
    "look_closer": 3,
}
"""How often each step is taken."""
OPERATIONS = ("add", "add", "put", "maximum", "minimum", "discard")
LIMITS = (0.0, 0.0, 0.25, 2.0, 9.0, 60.0, math.inf)

Step = tuple[str, dict[str, Any]]


def drawn_step(draw: random.Random) -> Step:
    (name,) = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
    flips = [draw.random() < 0.5 for _ in range(2)]
    arguments: dict[str, Any] = {}
    if name == "change":
        count = draw.randint(0, 6)
        arguments["operation"] = draw.choice(OPERATIONS)
        arguments["drawn"] = [(draw.randrange(SIZE), draw.randint(-9, 9)) for _ in range(count)]
        arguments["only"] = draw.choice(list(GIVEN)) if flips[0] else None
    elif name == "clear":
        arguments["only"] = draw.choice(CLEARED) if flips[0] else None
    elif name == "export":
        arguments = {"limit": draw.choice(LIMITS), "whole": draw.random() < 0.1}
    elif name == "begin_export":
        arguments["limit"] = draw.choice(LIMITS)
    elif name == "end_export":
        arguments["settled"] = flips[0]
    elif name == "next_epoch":
        arguments["another_process"] = flips[0]
    elif name == "try_again":
        arguments = {"committed": flips[0], "another_process": flips[1]}
    return name, arguments


def failure_of(norm: str, steps: list[Step], *, arena: bool) -> Exception | None:
    """What goes wrong on the way, if anything does."""
    history = History(norm, arena=arena)
    try:
        for name, arguments in steps:
            getattr(history, name)(**arguments)
    except Exception as error:
        return error
    finally:
        history.close()
    return None


def fewest(norm: str, steps: list[Step], *, arena: bool) -> list[Step]:
    """Steps without those that a failure does not need."""
    for at in reversed(range(len(steps))):
        without = steps[:at] + steps[at + 1 :]
        if failure_of(norm, without, arena=arena) is not None:
            steps = without
    return steps


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_history(norm: str, seed: int) -> None:
    draw = random.Random(seed)
    arena = draw.random() < 0.3
    steps = [drawn_step(draw) for _ in range(STEPS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_WORTH_PACKING", 6)  # so that sets pack themselves here, too
        error = failure_of(norm, steps, arena=arena)
        if error is not None:
            told = "\n".join(f"{name} {given}" for name, given in fewest(norm, steps, arena=arena))
            raise AssertionError(f"Seed {seed}, arena {arena}:\n{told}") from error
