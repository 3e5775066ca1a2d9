"""Policies of a random program under which a loss is followed by a twin or by copies that speak."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from tether.chaos.faults import TakeOverPoint
from tether.testing.fuzz.program import Strike

if TYPE_CHECKING:
    import random

    from tether.testing.fuzz.program import Policy, Program, Stage


def with_twins(program: Program, chance: random.Random) -> Program:
    """The program under such policies, where it can be, and with strikes at steps of take-overs."""
    if chance.random() < 0.4:
        return program
    policy = _repairing(program, program.policy, chance)
    events = tuple(
        event
        if event.policy is None
        else replace(event, policy=_repairing(program, event.policy, chance))
        for event in program.events
    )
    changed = replace(program, policy=policy, events=events)
    if not any(one.has_twin for one in changed.policies()):
        return changed
    stage = chance.choice(program.stages)
    losses = [_loss(program, stage, chance) for _ in range(chance.choice([0, 1, 1, 2, 3]))]
    steps = [_step(program, chance) for _ in range(chance.choice([0, 0, 1, 1, 2]))]
    return replace(changed, strikes=(*program.strikes, *losses, *steps))


def _repairing(program: Program, policy: Policy, chance: random.Random) -> Policy:
    """Another form of the policy, if it has one.

    Copies only where no other policy follows: they take the rows of an epoch in one order, and a program
    may depend on the order.
    """
    if policy.kind == "approximate" and can_heal(program):
        return replace(policy, heal=chance.choice([0, 1, 2, 3, 4]))
    if policy.kind != "barrier":
        return policy
    meanwhile = chance.choice(["", "skip", "stale", "stale"])
    strategy = chance.choice(["delay", "process", "suspend"])
    steady = not any(event.policy is not None for event in program.events)
    if program.arena_scope == "executor" and steady and chance.random() < 0.6:
        share = chance.choice([0.4, 0.7, 1.0])
        slots = sum(stage.slots for stage in program.stages)
        if int(share * slots) < len(program.stages):
            share = 1.0  # with less, no path from the source to the output has all its copies
        return replace(policy, kind="partially-active", share=share, meanwhile=meanwhile)
    return replace(policy, meanwhile=meanwhile, strategy=strategy)


def can_heal(program: Program) -> bool:
    """Whether an exact state of the query can be saved under an approximate policy."""
    by_seconds = program.window is not None and program.window.by == "seconds"
    return not by_seconds and not any(stage.feeds_back for stage in program.stages)


def _loss(program: Program, stage: Stage, chance: random.Random) -> Strike:
    """A slot forgets its state: that of the query, or of the twin if it is there first."""
    return Strike(
        point="before-attach",
        action="forget",
        epoch=chance.randrange(1, len(program.epochs)),
        slot=chance.randrange(stage.slots),
        operator=stage.name,
    )


def _step(program: Program, chance: random.Random) -> Strike:
    return Strike(
        point=chance.choice(get_args(TakeOverPoint)),
        action=chance.choice(["kill", "kill", "raise"]),
        epoch=chance.choice([0, 0, chance.randrange(len(program.epochs))]),
    )
