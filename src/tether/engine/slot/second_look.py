"""Output that is needed more than once: by a sink with two actions, or by a task's second attempt.

Spark computes rows again for every action on them, and an action such as ``limit`` stops a task in
the middle. So the first task that reaches the end of the epoch decides the slot's state, and leaves a
note of its report. Every later task of the same turn produces the same rows again on a private view of
the state, and repeats the report. It may be stopped anywhere, because its changes are not visible to
others.

A task of an earlier turn finds the state of a later one, and is refused. Spark has given up such a task
but could not stop it, or a sink has kept the DataFrame of an earlier epoch.
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
    """What later tasks cannot know without the first one that finished the epoch."""

    status: SlotStatus
    run: str
    loss: Loss | None = None
    """The loss that the operator was told of before the epoch's rows."""


encode_done = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EpochDone).decode


def refuse_earlier_turns(resident: Resident, control: SlotControl) -> None:
    """Refuse a task whose state a later turn of the same driver has already used.

    Raises: StaleOutputError: A later turn has.
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
    """The note for this epoch and turn, if a task has finished it."""
    if not resident.found or resident.applying or resident.state.version != control.epoch:
        return None
    memory = resident.memory()
    if (memory.run, memory.turn) != (control.run, control.turn) or not resident.note:
        return None
    done = _decode(resident.note)
    known = (done.run, done.status.turn, done.status.epoch)
    same = known == (control.run, control.turn, control.epoch)
    return done if same else None
