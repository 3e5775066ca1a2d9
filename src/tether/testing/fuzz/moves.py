"""Changes of numbers of slots in a random program, and strikes at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from tether.chaos.faults import RescalePoint
from tether.testing.fuzz.program import Event, Strike

if TYPE_CHECKING:
    import random

    from tether.testing.fuzz.program import Program


def with_moves(program: Program, chance: random.Random) -> Program:
    """The program with changes of its numbers of slots, if any can be changed, and strikes at them."""
    stages = [stage for stage in program.stages if stage.divisible]
    by_items = program.window is not None and program.window.by == "items"
    if not stages or by_items or chance.random() < 0.4:
        return program
    epochs = range(1, len(program.epochs))
    at = sorted(chance.sample(epochs, min(len(epochs), chance.choice([1, 1, 2, 3]))))
    moves = [
        Event(
            what="rescale",
            epoch=epoch,
            operator=chance.choice(stages).name,
            slots=chance.randint(1, 4),
        )
        for epoch in at
    ]
    strikes = [
        Strike(
            point=chance.choice(get_args(RescalePoint)),
            action=chance.choice(["kill", "kill", "raise"]),
            epoch=chance.choice(at),
        )
        for _ in range(chance.choice([0, 0, 1, 2]))
    ]
    events = sorted([*program.events, *moves], key=lambda event: event.epoch)
    return replace(program, events=tuple(events), strikes=(*program.strikes, *strikes))
