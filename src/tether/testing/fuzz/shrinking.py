"""From a program that shows a fault to a small one that shows it, too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tether.testing.fuzz.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.testing.fuzz.program import Program, Stage

MOST_RUNS = 400


def kind_of(finding: str) -> str:
    """What a finding is, whatever its numbers.

    Example:
        >>> kind_of("s0: epoch 7: the answer is outside its bound: off by 3, told 0.25")
        'the answer is outside its bound'
    """
    text = re.sub(r"^(s\d|output): epoch \d+: ", "", finding)
    text = re.sub(r": off by .*$", "", text)
    return re.sub(r"\d[\d.e+]*", "…", text)[:120]


def shrunk(program: Program, finding: str, most_runs: int = MOST_RUNS) -> Program:
    """The smallest program found that shows the same kind of finding.

    Args:
        program: One that shows it.
        finding: What it shows.
        most_runs: Programs to try.
    """
    wanted, at, smaller_since = kind_of(finding), 0, True
    for _ in range(most_runs):
        tries = list(_smaller(program))
        if at >= len(tries):
            if not smaller_since:
                break
            at, smaller_since = 0, False
            continue
        if any(kind_of(one) == wanted for one in run(tries[at]).findings):
            program, smaller_since = tries[at], True  # the next try has taken this one's place
        else:
            at += 1
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less, large things first."""
    yield from _shorter(program)
    for number in range(len(program.strikes)):
        yield replace(program, strikes=_without(program.strikes, number))
    for number, event in enumerate(program.events):
        yield replace(program, events=_without(program.events, number))
        if event.policy is not None:
            plain = replace(event, policy=None)
            yield replace(program, events=_with(program.events, number, plain))
    if program.sinks != ("all",):
        yield replace(program, sinks=("all",))
        for taking in program.sinks:
            if len(program.sinks) > 1:
                yield replace(program, sinks=(taking,))
    if len(program.stages) > 1:
        for number in range(len(program.stages)):
            yield replace(program, stages=_without(program.stages, number))
    for number, stage in enumerate(program.stages):
        for less in _smaller_stage(stage):
            yield replace(program, stages=_with(program.stages, number, less))
    yield from _plainer(program)
    yield from _fewer_rows(program)


def _shorter(program: Program) -> Iterator[Program]:
    for number in range(1, len(program.epochs)):
        yield replace(program, epochs=program.epochs[:number])


def _plainer(program: Program) -> Iterator[Program]:
    if program.arena_scope == "executor":
        yield replace(program, arena_scope="node")
    if program.own_policies:
        yield replace(program, own_policies=False)
    if program.compacts:
        yield replace(program, compacts=False)
    if program.window is not None:
        yield replace(program, window=None)
    if program.policy.early != 1:
        plain = replace(program.policy, early=1.0, target=0.5, rounding=0.0)
        yield replace(program, policy=plain)
    if program.policy.rounding:
        yield replace(program, policy=replace(program.policy, rounding=0.0))
    if program.batch_rows != 100:
        yield replace(program, batch_rows=100)


def _smaller_stage(stage: Stage) -> Iterator[Stage]:
    if stage.slots > 1:
        yield replace(stage, slots=1)
    if stage.feeds_back:
        yield replace(stage, feeds_back=False)
    if len(stage.states) > 1:
        for gone in stage.states:
            yield replace(
                stage,
                states=tuple(state for state in stage.states if state != gone),
                steps=tuple(step for step in stage.steps if step.state != gone.name),
            )
    for number in range(len(stage.steps)):
        yield replace(stage, steps=_without(stage.steps, number))
    for number, state in enumerate(stage.states):
        if state.weight != 1:
            plain = replace(state, weight=1.0)
            yield replace(stage, states=_with(stage.states, number, plain))
    if stage.emits != "nothing":
        yield replace(stage, emits="nothing")


def _fewer_rows(program: Program) -> Iterator[Program]:
    for number, rows in enumerate(program.epochs):
        size = len(rows)
        while size:
            for start in range(0, len(rows), size):
                left = rows[:start] + rows[start + size :]
                yield replace(program, epochs=_with(program.epochs, number, left))
            size //= 2


def _without(many: tuple, at: int) -> tuple:  # type: ignore[type-arg]
    return many[:at] + many[at + 1 :]


def _with(many: tuple, at: int, one: object) -> tuple:  # type: ignore[type-arg]
    return (*many[:at], one, *many[at + 1 :])
