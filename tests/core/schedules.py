"""Drives a simulated run through a schedule that a seed stands for, and checks its answer."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .small_graphs import Answer

MOST_STEPS = 5_000
FAULT_EVERY = 40
TICK_EVERY = 6


class Run(Protocol):
    """A simulated run."""

    crashes: int

    def delicate(self) -> bool: ...
    def progress(self) -> list[tuple[str, Any]]: ...
    def faults(self) -> list[tuple[str, Any]]: ...
    def finished(self) -> bool: ...
    def answer(self) -> Answer: ...
    def do(self, action: str, about: Any) -> None: ...


def drive(run: Run, seed: int, most_crashes: int, ticks: str | None = None) -> None:
    """Run to the end: deliveries in any order, crashes at any step, also amid recoveries."""
    random = Random(seed)
    pace: dict[object, bool] = {}  # some channels, and some kinds of steps, are slow in this run

    def slow(option: tuple[str, Any]) -> bool:
        name = option[0] if isinstance(option[1], int) else option
        return pace.setdefault(name, random.random() < 1 / 4) and random.random() < 9 / 10

    for _ in range(MOST_STEPS):
        if run.finished():
            if run.crashes >= most_crashes or random.random() < 1 / 2:
                return
            run.do(
                *random.choice(run.faults())
            )  # all was done: what a loss then takes must come back
            continue
        recovering = run.progress()[:1] == [("restore", None)]
        chance = random.random() * FAULT_EVERY
        if run.crashes < most_crashes and chance < (10 if run.delicate() else 1):
            run.do(*random.choice(run.faults()))
        elif ticks and not recovering and random.random() * TICK_EVERY < 1:
            run.do(ticks, None)
        else:
            able = run.progress()
            assert able, "nothing can go on, but not all is done: the stream is blocked"
            run.do(*random.choice([option for option in able if not slow(option)] or able))
    raise AssertionError("the run does not end")
