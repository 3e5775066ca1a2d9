"""From a loss to an exact query again without a pause: the twin, and how it takes over.

After a loss *main*, the running query, goes on with what it has: its rows are tentative. A *twin*, a
second run from the newest complete snapshot, reads the same epochs again with nothing missing. It is
silent while it passes epochs whose stable output was given before, then gives the stable output of
the tentative ones. When it has caught up, its slots take the place of main's, between two epochs.

The query itself, its place in the source and its commit log, never moves: only state does, by one
record of the commit log. So there is always exactly one run that is the query (DPC 2005 §3.3 keeps
two replicas for that; ABS 2015 §5 stops). The steps, and what it means to die right after each:

1. A note is durable: rows are tentative from epoch e on, and the twin starts from snapshot S.
   (Nothing tentative has been given. The restarted query is tentative from e on.)
2. Main goes on, tentative. (As after 1.)
3. The twin starts from S. (Its state is resident only, so it is gone. A new twin starts from S.)
4. The twin gives the stable output of epoch x, and the note says so before it goes on. (Died
   between the two: x is given again, in place of itself. Died after: no later twin gives x again.)
5. Main stands still at the end of its epoch c, which Spark has committed. (As after 4.)
6. The twin has come to the end of c, and its state as of c is durable. (No record names it yet: it
   does not count, and is swept away. As after 4.)
7. The note says that the twin is about to take over at c. (As after 4.)
8. The commit log has a complete snapshot of c. From this record on the twin's slots are the query.
   (The restarted query finds note and record, restores that snapshot and is exact.)
9. Main's slots are replaced by the twin's, and the note is removed. (It is an ordinary query again.)
10. Main goes on, stable, with epoch c + 1. What was resident of the old slots is removed.

Losing the twin's slots ends the twin; a new one starts from the same S. Losing more of main's slots
changes nothing: it is tentative already.

Healing an approximate query (``tentative=False``) is the same without a note and without output: main
is within its bound, so what it gives stands. Where no twin can come to an end, it goes on as it is. A
restarted query sees by its account that it has lost something, and starts a twin for that.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from tether.core.ids import NEVER, Epoch, epoch_before

Strategy = Literal["process", "delay", "suspend"]
"""How main and twin share the cluster (DPC 2005 §5): ``process``, main keeps its pace and the twin takes
what is left; ``delay``, both run and main may be later; ``suspend``, main waits for the twin."""

CLOSE = 1
"""The twin has caught up when it is no more than so many epochs behind: main waits for those."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """All of it that is durable, beside Spark's logs and the commit log."""

    since: Epoch
    """First epoch whose rows are tentative."""
    snapshot: Epoch
    """The epoch whose snapshot twins start from; one before the first: from nothing."""
    through: Epoch
    """Last epoch whose stable output has been given."""
    over: Epoch | None = None
    """The epoch at whose end a twin was about to take over."""


Phase = Literal[
    "whole", "noting", "tentative", "holding", "saving", "announcing", "recording", "over"
]


class TakeOver(msgspec.Struct, frozen=True, kw_only=True):
    """All that the protocol knows."""

    phase: Phase = "whole"
    main: Epoch = NEVER
    """Last epoch that main has ended."""
    note: Note | None = None
    """As it is durable, or is about to be."""
    twins: int = 0
    """How many have been started."""
    twin: Epoch | None = None
    """Last epoch that the twin has ended; None where there is none."""
    stopped: Epoch | None = None
    """The epoch at whose end main stands still, if it does."""
    tentative: bool = True
    """Whether main's rows are tentative meanwhile."""
    strategy: Strategy = "delay"

    @property
    def behind(self) -> int:
        """Epochs that the twin must still run to be where main is."""
        start = self.note.snapshot if self.note is not None else self.main
        return self.main - (start if self.twin is None else self.twin)

    def kind(self, epoch: Epoch) -> Literal["stable", "tentative"]:
        """What main's rows of an epoch are."""
        note = self.note
        missing = self.phase not in ("whole", "over") and self.tentative and note is not None
        return "tentative" if missing and note is not None and epoch >= note.since else "stable"

    def speaks(self, epoch: Epoch) -> bool:
        """Whether the twin gives its output of an epoch."""
        return self.tentative and self.note is not None and epoch > self.note.through


# ---- events ------------------------------------------------------------------------------------


class Lost(msgspec.Struct, frozen=True, kw_only=True, tag="lost"):
    """Slots of main have lost their state, or an approximate query is to be healed."""

    epoch: Epoch
    """The epoch that main was about to run."""
    snapshot: Epoch
    """The epoch of the newest complete snapshot."""


class Noted(msgspec.Struct, frozen=True, kw_only=True, tag="noted"):
    """The note is durable."""

    note: Note


class MainEnded(msgspec.Struct, frozen=True, kw_only=True, tag="main-ended"):
    """Main has come to the end of an epoch."""

    epoch: Epoch


class TwinEnded(msgspec.Struct, frozen=True, kw_only=True, tag="twin-ended"):
    """The twin has come to the end of an epoch; what it had to give of it has been given."""

    epoch: Epoch
    twin: int


class TwinLost(msgspec.Struct, frozen=True, kw_only=True, tag="twin-lost"):
    """The twin cannot go on."""

    twin: int


class Hopeless(msgspec.Struct, frozen=True, kw_only=True, tag="hopeless"):
    """Twins fail whatever is done, and main can go on without: it is within its bound for good."""

    twin: int


class MainHeld(msgspec.Struct, frozen=True, kw_only=True, tag="main-held"):
    """Main stands still at the end of this epoch, and Spark has committed it."""

    epoch: Epoch


class TwinSaved(msgspec.Struct, frozen=True, kw_only=True, tag="twin-saved"):
    """The twin's state as of the end of an epoch is durable."""

    epoch: Epoch
    twin: int


class Recorded(msgspec.Struct, frozen=True, kw_only=True, tag="recorded"):
    """The record that names that state is durable."""

    epoch: Epoch


class NoteRemoved(msgspec.Struct, frozen=True, kw_only=True, tag="note-removed"):
    """The note is gone, durably."""


Event = (
    Lost
    | Noted
    | MainEnded
    | TwinEnded
    | TwinLost
    | Hopeless
    | MainHeld
    | TwinSaved
    | Recorded
    | NoteRemoved
)

# ---- instructions ------------------------------------------------------------------------------


class WriteNote(msgspec.Struct, frozen=True, kw_only=True, tag="write-note"):
    """Make this note durable in place of any other, then say so."""

    note: Note


class StartTwin(msgspec.Struct, frozen=True, kw_only=True, tag="start-twin"):
    """Start a run from the snapshot of an epoch; its first epoch is the one after."""

    twin: int
    snapshot: Epoch


class EndTwin(msgspec.Struct, frozen=True, kw_only=True, tag="end-twin"):
    """End a twin that runs, and remove what is resident of it."""

    twin: int


class HoldMain(msgspec.Struct, frozen=True, kw_only=True, tag="hold-main"):
    """Let main begin no further epoch; say when it stands and Spark has committed its last one."""


class SaveTwin(msgspec.Struct, frozen=True, kw_only=True, tag="save-twin"):
    """Make the twin's state as of the end of this epoch durable, and name it nowhere."""

    twin: int
    epoch: Epoch


class RecordTakeOver(msgspec.Struct, frozen=True, kw_only=True, tag="record-take-over"):
    """Declare what was saved a complete snapshot, in the commit log."""

    epoch: Epoch


class SwapIn(msgspec.Struct, frozen=True, kw_only=True, tag="swap-in"):
    """The twin's slots are main's from now on; the old ones are never used again."""

    twin: int
    epoch: Epoch


class RemoveNote(msgspec.Struct, frozen=True, kw_only=True, tag="remove-note"):
    """Remove the note durably, then say so."""


class ReleaseMain(msgspec.Struct, frozen=True, kw_only=True, tag="release-main"):
    """Main may begin its next epoch."""


Instruction = (
    WriteNote
    | StartTwin
    | EndTwin
    | HoldMain
    | SaveTwin
    | RecordTakeOver
    | SwapIn
    | RemoveNote
    | ReleaseMain
)
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
        return state, ()  # of a twin that was ended
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
        return state, ()  # tentative already: nothing changes for main's reader, nor for the twin
    note = Note(since=event.epoch, snapshot=event.snapshot, through=epoch_before(event.epoch))
    state = replace(state, main=event.epoch - 1, note=note)
    if state.tentative:
        return replace(state, phase="noting"), (WriteNote(note=note),)
    return _start(replace(state, phase="tentative"))


def _start(state: TakeOver) -> _Step:
    assert state.note is not None
    snapshot = state.note.snapshot
    state = replace(state, phase="tentative", twins=state.twins + 1, twin=snapshot)
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
    """Let main stand still once there is little left to wait for, or at once where it is suspended."""
    if state.phase != "tentative" or state.twin is None:
        return state, ()
    if state.strategy == "suspend" or state.behind <= CLOSE:
        return replace(state, phase="holding"), (HoldMain(),)
    return state, ()


def _if_there(state: TakeOver) -> _Step:
    """Save the twin once it has come to where main stands."""
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
    state, close = _if_close(state)
    state, there = _if_there(state)
    return state, (*noted, *close, *there)


def _twin_lost(state: TakeOver, event: TwinLost) -> _Step:
    if state.phase in ("recording", "over"):
        return state, ()  # while the record is being written nobody may go back: see ``step`` 8
    # Main may go on: the next twin has the whole way before it again.
    held = state.phase != "tentative" and state.strategy != "suspend"
    assert state.note is not None
    state, start = _start(replace(state, stopped=None, note=replace(state.note, over=None)))
    return state, (EndTwin(twin=event.twin), *(ReleaseMain(),) * held, *start)


def _hopeless(state: TakeOver, event: Hopeless) -> _Step:
    if state.tentative or state.phase in ("recording", "over"):
        return state, ()  # what is tentative cannot be left so: the host ends the query
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
    """What a restarted query does, by what is durable.

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
