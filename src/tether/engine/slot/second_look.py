"""Output that is asked for more than once: by a sink with two actions, or by a task's second attempt.

Spark computes rows again for every action on them, and an action such as ``limit`` stops a task in
the middle. So the task that comes to the end of the epoch first decides what the slot's state is: it
leaves a note of what it reported. Every later task of the same turn gives the same rows again from a
private view of the state, and repeats the report. It may end wherever it likes: nothing it does is
seen by anybody else.

A task of an earlier turn finds the state of a later one, and is refused. It is one that Spark has
given up and could not stop, or a sink has kept rows of an epoch that is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import StaleOutputError
from tether.engine.messages import SlotStatus  # noqa: TC001
from tether.operator import Loss  # noqa: TC001 - msgspec reads the annotations at run time

if TYPE_CHECKING:
    from tether.engine.messages import SlotControl
    from tether.engine.slot.resident import Resident


class EpochDone(msgspec.Struct, frozen=True, kw_only=True):
    """What the first task to end the epoch knew that others cannot find out."""

    status: SlotStatus
    run: str
    loss: Loss | None = None
    """What the operator was told of a loss before the epoch's rows."""


encode_done = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EpochDone).decode


def refuse_earlier_turns(resident: Resident, control: SlotControl) -> None:
    """Leave a state alone that a later turn of the same driver has worked on.

    Raises:
        StaleOutputError: It has.
    """
    if not resident.found:
        return
    memory = resident.memory()
    if memory.run == control.run and memory.turn > control.turn:
        raise StaleOutputError(
            f"The output of epoch {control.epoch} was used when that epoch was over.",
            why="Rows are computed from the operator's state, which has moved on.",
            do="Use the rows inside the sink; to have them later, write, collect or cache them there.",
        )


def done_before(resident: Resident, control: SlotControl) -> EpochDone | None:
    """What was reported for this epoch and turn, if a task has come to its end."""
    if not resident.found or resident.applying or resident.state.version != control.epoch:
        return None
    memory = resident.memory()
    if (memory.run, memory.turn) != (control.run, control.turn) or not resident.note:
        return None
    done = _decode(resident.note)
    known = (done.run, done.status.turn, done.status.epoch)
    same = known == (control.run, control.turn, control.epoch)
    return done if same else None
