"""Steps of the take-over (:mod:`tether.protocols.take_over`) for each event and after a restart."""

from __future__ import annotations

from msgspec.structs import replace

from tether.core.ids import Epoch, epoch_before
from tether.protocols.take_over import (
    EndTwin,
    Event,
    HoldMain,
    Hopeless,
    Instruction,
    Lost,
    MainEnded,
    MainHeld,
    Note,
    Noted,
    NoteRemoved,
    Recorded,
    RecordTakeOver,
    ReleaseMain,
    RemoveNote,
    SaveTwin,
    StartTwin,
    Strategy,
    SwapIn,
    TakeOver,
    TwinEnded,
    TwinLost,
    TwinSaved,
    WriteNote,
)
from tether.protocols.waiting import main_waits, patience

_Step = tuple[TakeOver, tuple[Instruction, ...]]


def step(state: TakeOver, event: Event) -> _Step:
    """Take one event in; give the new state and what must be done, each before the next.

    Example:
        >>> state, asked = step(TakeOver(main=8), Lost(epoch=9, snapshot=4))
        >>> asked
        (WriteNote(note=Note(since=9, snapshot=4, through=8, over=None)),)
        >>> state, asked = step(state, Noted(note=asked[0].note))
        >>> asked
        (StartTwin(twin=1, snapshot=4),)
        >>> state.kind(9), state.speaks(8), state.speaks(9)
        ('tentative', False, True)
    """
    if isinstance(event, TwinEnded | TwinLost | Hopeless | TwinSaved):
        return _of_twin(state, event)
    if isinstance(event, Lost):
        return _lost(state, event)
    if isinstance(event, Noted):
        return _noted(state, event.note)
    if isinstance(event, MainEnded):
        return _if_close(replace(state, main=event.epoch))
    if isinstance(event, MainHeld):
        held = replace(state, main=event.epoch, stopped=event.epoch)
        return _if_there(held) if state.phase == "holding" else (state, ())
    return _recorded(state, event)


def _of_twin(state: TakeOver, event: TwinEnded | TwinLost | Hopeless | TwinSaved) -> _Step:
    if event.twin != state.twins or state.twin is None:
        return state, ()  # from a twin that has been stopped
    if isinstance(event, TwinEnded):
        return _twin_ended(state, event)
    if isinstance(event, Hopeless):
        return _hopeless(state, event)
    return _saved(state, event) if isinstance(event, TwinSaved) else _twin_lost(state, event)


def _recorded(state: TakeOver, event: Recorded | NoteRemoved) -> _Step:
    if isinstance(event, NoteRemoved):
        release = (ReleaseMain(),) * (state.stopped is not None)
        return (_whole(state), release) if state.phase == "over" else (state, ())
    if state.phase != "recording" or event.epoch != state.stopped:
        return state, ()
    swap = SwapIn(twin=state.twins, epoch=event.epoch)
    if state.tentative:
        return replace(state, phase="over"), (swap, RemoveNote())
    return _whole(state), (swap, ReleaseMain())


def _whole(state: TakeOver) -> TakeOver:
    return replace(state, phase="whole", note=None, twin=None, stopped=None)


def _lost(state: TakeOver, event: Lost) -> _Step:
    if state.phase != "whole":
        return state, ()  # already tentative: nothing changes for readers or for the twin
    note = Note(since=event.epoch, snapshot=event.snapshot, through=epoch_before(event.epoch))
    state = replace(state, main=event.epoch - 1, note=note)
    if state.tentative:
        return replace(state, phase="noting"), (WriteNote(note=note),)
    return _start(replace(state, phase="tentative"))


def _start(state: TakeOver) -> _Step:
    assert state.note is not None
    snapshot = state.note.snapshot
    state = replace(state, phase="tentative", twins=state.twins + 1, twin=snapshot, closest=None)
    start = StartTwin(twin=state.twins, snapshot=snapshot)
    state, hold = _if_close(state)
    return state, (*hold, start)


def _noted(state: TakeOver, note: Note) -> _Step:
    if state.phase == "noting":
        return _start(replace(state, note=note))
    if state.phase == "announcing" and note.over is not None and note.over == state.stopped:
        return replace(state, phase="recording", note=note), (RecordTakeOver(epoch=note.over),)
    return replace(state, note=note) if state.note is not None else state, ()


def _if_close(state: TakeOver) -> _Step:
    """Hold main, if it is time."""
    if state.phase == "tentative" and main_waits(state):
        return replace(state, phase="holding"), (HoldMain(),)
    return state, ()


def _if_there(state: TakeOver) -> _Step:
    """Save the twin once it has reached the epoch at which main is held."""
    stopped = state.stopped
    if state.phase == "holding" and stopped is not None and state.twin == stopped:
        return replace(state, phase="saving"), (SaveTwin(twin=state.twins, epoch=stopped),)
    return state, ()


def _twin_ended(state: TakeOver, event: TwinEnded) -> _Step:
    noted: tuple[Instruction, ...] = ()
    if state.speaks(event.epoch) and state.note is not None:
        state = replace(state, note=replace(state.note, through=event.epoch))
        assert state.note is not None
        noted = (WriteNote(note=state.note),)
    state = replace(state, twin=event.epoch)
    if state.closest is None:
        state = replace(state, patient_until=patience(state))
    if state.closest is None or state.behind < state.closest:
        state = replace(state, closest=state.behind, closest_at=state.main)
    state, close = _if_close(state)
    state, there = _if_there(state)
    return state, (*noted, *close, *there)


def _twin_lost(state: TakeOver, event: TwinLost) -> _Step:
    if state.phase in ("recording", "over"):
        return state, ()  # while the record is being written there is no way back (step 8)
    # Main may continue, because the next twin has to start from the snapshot again.
    held = state.phase != "tentative" and state.strategy != "suspend"
    assert state.note is not None
    state, start = _start(replace(state, stopped=None, note=replace(state.note, over=None)))
    return state, (EndTwin(twin=event.twin), *(ReleaseMain(),) * held, *start)


def _hopeless(state: TakeOver, event: Hopeless) -> _Step:
    if state.tentative or state.phase in ("recording", "over"):
        return state, ()  # tentative rows must not stay uncorrected, so the host ends the query
    held = state.phase != "tentative"
    return _whole(state), (EndTwin(twin=event.twin), *(ReleaseMain(),) * held)


def _saved(state: TakeOver, event: TwinSaved) -> _Step:
    if state.phase != "saving" or event.epoch != state.stopped:
        return state, ()
    if not state.tentative:
        return replace(state, phase="recording"), (RecordTakeOver(epoch=event.epoch),)
    assert state.note is not None
    note = replace(state.note, over=event.epoch)
    return replace(state, phase="announcing", note=note), (WriteNote(note=note),)


def resumed(
    note: Note | None, complete: Epoch, next_epoch: Epoch, *, strategy: Strategy = "delay"
) -> _Step:
    """What a restarted query does, depending on what is durable.

    Args:
        note: The note, if there is one.
        complete: Epoch of the newest complete snapshot in the commit log.
        next_epoch: The epoch that Spark goes on with.
        strategy: How main and twin share the cluster.

    Example:
        >>> state, asked = resumed(Note(since=9, snapshot=4, through=10), 4, 15)
        >>> state.kind(15), asked
        ('tentative', (StartTwin(twin=1, snapshot=4),))
        >>> resumed(Note(since=9, snapshot=4, through=14, over=14), 14, 15)[1]
        (RemoveNote(),)
    """
    state = TakeOver(main=epoch_before(next_epoch), strategy=strategy)
    if note is None:
        return state, ()
    if note.over is not None and note.over == complete:
        return replace(state, phase="over", note=note), (RemoveNote(),)
    return _start(replace(state, note=replace(note, over=None)))
