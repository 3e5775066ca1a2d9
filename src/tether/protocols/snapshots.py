"""The coordinator: when snapshots begin and are complete, and what is dropped then (ABS 2015 §6).

The coordinator begins one snapshot at a time. One counts only when the part of every slot is
durable and a record of that is durable too; only then is the one before dropped. So at any moment
there is exactly one to go back to. A snapshot is given up if a part fails, a slot is lost, or it takes
too long: it no longer blocks anything, is never restored, and its number is not used again. (If its
record became durable all the same, a restarted driver may use it: all slots start from it then, and its
parts are dropped only when a later one is complete.)

A source can be read again for a limited number of epochs only. When half of them have passed since
the newest complete snapshot, the next one begins at once, whatever the interval says; shortly before
the limit the stream waits for it; and at the limit the stream must stop, while nothing is lost yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tether.core.graph import SlotId  # noqa: TC001 - msgspec reads the annotations at run time
from tether.core.ids import NEVER, Epoch, SnapshotNumber

if TYPE_CHECKING:
    from tether.policies.policy import SnapshotSchedule


class CoordinatorState(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinator's state."""

    next_number: SnapshotNumber = SnapshotNumber(0)
    number: SnapshotNumber | None = None
    """The snapshot that is under way."""
    missing: frozenset[SlotId] = frozenset()
    """Slots whose part of it is not durable yet."""
    begun: float | None = None
    """Position of the stream where it, or the last one, began; in the policy's unit."""
    begun_epoch: Epoch = NEVER
    """The epoch whose end is its barrier."""
    held: bool = False
    """Whether the sources wait for it."""
    complete: SnapshotNumber | None = None
    """The snapshot to go back to; None: the start of the query."""
    complete_epoch: Epoch = NEVER
    """Its epoch; before the first snapshot, the epoch before the first."""

    @property
    def recording(self) -> bool:
        """Whether all parts are durable, and only the record of that is missing."""
        return self.number is not None and not self.missing


class EpochBegins(msgspec.Struct, frozen=True, kw_only=True, tag="epoch-begins"):
    """A mark in the stream, at which a snapshot may begin."""

    epoch: Epoch
    seconds: float = 0.0
    """Current time of a monotonic clock."""
    readable: int | None = None
    """Number of epochs before this one that the source can be read again from; None: all."""
    asked: bool = False
    """Whether a user has asked for one, whatever the interval is."""


class PartsDurable(msgspec.Struct, frozen=True, kw_only=True, tag="parts-durable"):
    """Some slots' parts of a snapshot are durable."""

    slots: frozenset[SlotId]
    """All that an epoch reported: one event each would cost the square of the number of slots."""
    number: SnapshotNumber


class PartFailed(msgspec.Struct, frozen=True, kw_only=True, tag="part-failed"):
    """A slot's part of a snapshot, or the record of it, could not be written."""

    number: SnapshotNumber


class CompleteRecorded(msgspec.Struct, frozen=True, kw_only=True, tag="complete-recorded"):
    """The record that a snapshot is complete is durable."""

    number: SnapshotNumber


class SlotsLost(msgspec.Struct, frozen=True, kw_only=True, tag="slots-lost"):
    """Slots lost their state: a snapshot that is not complete is given up.

    If the record of completeness is being written, finish that first where it can be: a snapshot
    that is complete need not be taken again.
    """


class LastSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="last-snapshot"):
    """The query is being stopped after this epoch: take a snapshot now, whatever the interval is."""

    epoch: Epoch


CoordinatorEvent = (
    EpochBegins | PartsDurable | PartFailed | CompleteRecorded | SlotsLost | LastSnapshot
)


class BeginSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="begin-snapshot"):
    """Put the barrier into every source channel, here and now."""

    number: SnapshotNumber
    hold_sources: bool
    """Whether nothing more is taken from the sources until it is complete or given up."""


class RecordComplete(msgspec.Struct, frozen=True, kw_only=True, tag="record-complete"):
    """Record durably that this snapshot is complete, then send ``CompleteRecorded``."""

    number: SnapshotNumber


class DropOlder(msgspec.Struct, frozen=True, kw_only=True, tag="drop-older"):
    """Parts that restoring this snapshot does not need may be deleted."""

    number: SnapshotNumber


class GiveUpSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="give-up-snapshot"):
    """Give the snapshot up; no record may name late parts of it."""

    number: SnapshotNumber


class StopStream(msgspec.Struct, frozen=True, kw_only=True, tag="stop-stream"):
    """Do not run this epoch: after it the source could no longer be read from the snapshot on."""

    behind: int
    """Epochs since the newest complete snapshot."""


class ReleaseSources(msgspec.Struct, frozen=True, kw_only=True, tag="release-sources"):
    """The sources may continue."""


CoordinatorInstruction = (
    BeginSnapshot | RecordComplete | DropOlder | GiveUpSnapshot | StopStream | ReleaseSources
)
_Step = tuple[CoordinatorState, tuple[CoordinatorInstruction, ...]]


def coordinate(
    state: CoordinatorState,
    event: CoordinatorEvent,
    policy: SnapshotSchedule,
    slots: frozenset[SlotId],
) -> _Step:
    """Take one event in; give the new state and what must be done, each before the next.

    Args:
        state: The coordinator's.
        event: What happened.
        policy: When snapshots begin, and whether the stream waits for them.
        slots: All slots of the graph.

    Example:
        >>> from tether.policies.barrier import Barrier
        >>> only = SlotId("sum", 0)
        >>> state, asked = coordinate(
        ...     CoordinatorState(), EpochBegins(epoch=0), Barrier(5), frozenset([only]))
        >>> asked
        (BeginSnapshot(number=0, hold_sources=False),)
        >>> durable = PartsDurable(slots=frozenset([only]), number=0)
        >>> coordinate(state, durable, Barrier(5), frozenset([only]))[1]
        (RecordComplete(number=0),)
    """
    if isinstance(event, EpochBegins):
        return _epoch(state, event, policy, slots)
    if isinstance(event, SlotsLost):
        # This includes one whose record is being written. Slots now go back to the one before. If it
        # counted later in this run, a slot that is behind it could miss epochs between the two.
        return _give_up(state)
    if isinstance(event, LastSnapshot):
        state, asked = _give_up(state)
        state, begin = _begin(state, slots, event.epoch, hold=True)
        return state, (*asked, begin)
    if event.number != state.number:
        return state, ()  # of a snapshot that was given up: too late
    if isinstance(event, PartFailed):
        return _give_up(state)
    return _progress(state, event)


def _progress(state: CoordinatorState, event: PartsDurable | CompleteRecorded) -> _Step:
    if isinstance(event, CompleteRecorded):
        if not state.recording:
            return state, ()
        done, release = _release(
            replace(state, complete=event.number, complete_epoch=state.begun_epoch, number=None)
        )
        return done, (DropOlder(number=event.number), *release)
    if not event.slots & state.missing:
        return state, ()
    state = replace(state, missing=state.missing - event.slots)
    return state, (RecordComplete(number=event.number),) * state.recording


WAIT_EPOCHS = 2
"""Number of epochs before the limit at which the stream waits for a snapshot."""


def _epoch(
    state: CoordinatorState, event: EpochBegins, policy: SnapshotSchedule, slots: frozenset[SlotId]
) -> _Step:
    now = float(event.epoch) if policy.by == "epochs" else event.seconds
    if state.begun is not None and now < state.begun:
        state = replace(state, begun=now)  # the stream was rewound, or the clock is another
    behind = event.epoch - state.complete_epoch
    readable = float("inf") if event.readable is None else event.readable
    if behind >= readable:
        return state, (StopStream(behind=behind),)
    at_once = state.begun is None or (event.asked and state.number is None)
    elapsed = float("inf") if at_once else now - state.begun  # type: ignore[operator]
    asked: tuple[CoordinatorInstruction, ...] = ()
    if state.number is not None and not state.recording:
        if elapsed < policy.interval * policy.patience and behind < readable - WAIT_EPOCHS:
            return state, ()
        state, asked = _give_up(state)
    # Not ``behind < readable // 2``: half of an infinite number is infinite.
    in_time = elapsed < policy.interval and 2 * (behind + 1) <= readable
    if state.number is not None or in_time:
        return state, asked
    hold = policy.mode == "sync" or behind >= readable - WAIT_EPOCHS
    state, begin = _begin(replace(state, begun=now), slots, event.epoch, hold=hold)
    return state, (*asked, begin)


def _begin(
    state: CoordinatorState, slots: frozenset[SlotId], epoch: Epoch, *, hold: bool
) -> tuple[CoordinatorState, BeginSnapshot]:
    number = state.next_number
    state = replace(
        state,
        next_number=number + 1,
        number=number,
        missing=slots,
        begun_epoch=epoch,
        held=hold,
    )
    return state, BeginSnapshot(number=number, hold_sources=hold)


def _give_up(state: CoordinatorState) -> _Step:
    if state.number is None:
        return state, ()
    given_up = GiveUpSnapshot(number=state.number)
    state, release = _release(replace(state, number=None, missing=frozenset()))
    return state, (given_up, *release)


def _release(state: CoordinatorState) -> _Step:
    return replace(state, held=False), (ReleaseSources(),) * state.held


def resumed(complete: SnapshotNumber | None, epoch: Epoch = NEVER) -> CoordinatorState:
    """The coordinator of a driver that was restarted.

    Args:
        complete: Number of the newest snapshot with a readable record of its completeness.
        epoch: The epoch at whose end it was taken; where there is none, that before the first.

    Example:
        >>> resumed(4, 40).next_number
        5
    """
    number = SnapshotNumber(0 if complete is None else complete + 1)
    return CoordinatorState(next_number=number, complete=complete, complete_epoch=epoch)
