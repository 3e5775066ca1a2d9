"""An independent check of a finished simulation.

The simulator's own account shares the slots' arithmetic. Here the items of the sources are added up once
more, one by one in plain Python, and the answers are compared with the bounds that were reported.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tether.testing.judge import Failure, Measure, Told, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.simulate.world import World

MOST_ITEMS = 400_000
"""Largest number of items to judge; more would take longer than the simulation itself."""


def outside(world: World) -> list[str]:
    """Broken promises, in words; empty if there are none."""
    scenario = world.scenario
    if sum(items.size for items in world.given) // 2 * scenario.operators > MOST_ITEMS:
        return []
    windows = _windows(world)
    measures = {str(copy): Measure(scenario.norm) for copy in range(scenario.copies)}
    failures = [Failure(epoch=0, what="as planned")] if world.book.tolls else []
    found = []
    for operator in range(scenario.operators):
        verdict = judge(
            windows,
            lambda rows, operator=operator: _right(world, rows, operator),  # type: ignore[misc]
            failures,
            _told(world, operator),
            measures,
            alpha=float(scenario.alpha * scenario.fan_out**operator),
        )
        found += [f"judge: operator {operator}: {one}" for one in verdict.outside]
    return found


def _windows(world: World) -> list[Any]:
    """The items that each answer covers: those of a window, or all."""
    window = world.scenario.policy.window
    if window is None or not window.has_ends:
        return [world.given]
    windows: list[Any] = [[]]
    for items, ended in zip(world.given, world.ends_before, strict=True):
        windows += [[] for _ in range(ended - (len(windows) - 1))]
        windows[-1].append(items)
    windows += [[] for _ in range(len(world.ideal_answers) + 1 - len(windows))]
    return windows


def _right(world: World, windows: list[Any], operator: int) -> Iterator[dict[str, dict[int, int]]]:
    """The contents of each window in an operator's copies, if nothing ever fails."""
    scenario = world.scenario
    for rounds in windows:
        sums: list[dict[int, int]] = [{} for _ in range(scenario.copies)]
        for items in rounds:
            for copy, (keys, amounts) in enumerate(items.tolist()):
                for first, amount in zip(keys, amounts, strict=True):
                    for key in _reached(first, operator, scenario.fan_out, scenario.keys):
                        sums[copy][key] = sums[copy].get(key, 0) + amount
        yield {str(copy): own for copy, own in enumerate(sums)}


def _reached(key: int, operators: int, each: int, keys: int) -> list[int]:
    """The keys of the items that an item causes a number of operators later."""
    reached = [key]
    for _ in range(operators):
        reached = [(one * 7 + 3 + number) % keys for one in reached for number in range(each)]
    return reached


def _told(world: World, operator: int) -> list[Told]:
    """The answers of an operator's copies, and what was told of them."""
    scenario, tolls = world.scenario, world.book.tolls
    slots = world.slots[operator * scenario.copies : (operator + 1) * scenario.copies]
    before = (operator + 1) * scenario.copies
    # Items that an earlier operator had sent and that were not received do not arrive here.
    lost = sum(t.items for t in tolls if t.slot < before)
    lost += sum(t.unacked for t in tolls if t.slot < before - scenario.copies)
    told, ends = [], sorted(world.ideal_answers)
    for number, end in enumerate(ends):
        if all((s.number, end) in world.answers for s in slots):  # else it has been reported
            given = {str(s.copy): world.answers[s.number, end] for s in slots}
            answer = {copy: dict(enumerate(sums.tolist())) for copy, sums in given.items()}
            promised = float(scenario.policy.budget.max_state_error)
            told.append(Told(epoch=number, answer=answer, spent=promised, items_lost=lost))
    now = {str(s.copy): dict(enumerate(s.sums.values().tolist())) for s in slots}
    spent = math.inf if ends else world.book.bound().operators[operator].spent
    told.append(Told(epoch=len(ends), answer=now, spent=spent, items_lost=lost))
    return told
