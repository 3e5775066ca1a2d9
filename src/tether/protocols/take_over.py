"""The take-over: how a query is exact again after a loss without a pause, with the help of a twin.

After a loss *main*, the running query, continues with the slots that are left: its rows are tentative. A
*twin*, a second run from the newest complete snapshot, reads the same epochs again with nothing missing.
It gives no output for epochs whose stable output was given before, then gives the stable output of the
tentative ones. When it has caught up, its slots take the place of main's, between two epochs.

The query itself, its position in the source and its commit log stay where they are: only state is handed
over, by one record of the commit log. So there is always exactly one run that is the query (DPC 2005
§3.3 keeps two replicas for that; ABS 2015 §5 stops). The steps, and what it means to die right after
each:

1. A note is durable: rows are tentative from epoch e on, and the twin starts from snapshot S.
   (Nothing tentative has been given. The restarted query is tentative from e on.)
2. Main continues, tentative. (As after 1.)
3. The twin starts from S. (Its state is resident only, so it is gone. A new twin starts from S.)
4. The twin gives the stable output of epoch x, and the note says so before it goes on. (Died
   between the two: x is given again, in place of itself. Died after: no later twin gives x again.)
5. Main is held at the end of its epoch c, which Spark has committed. (As after 4.)
6. The twin has come to the end of c, and its state as of c is durable. (No record names it yet: it
   does not count, and is swept away. As after 4.)
7. The note says that the twin is about to take over at c. (As after 4.)
8. The commit log has a complete snapshot of c. From this record on the twin's slots are the query.
   (The restarted query finds note and record, restores that snapshot and is exact.)
9. Main's slots are replaced by the twin's, and the note is removed. (It is an ordinary query again.)
10. Main continues, stable, with epoch c + 1. The resident state of the old slots is removed.

Losing the twin's slots ends the twin; a new one starts from the same S. Losing more of main's slots
changes nothing: it is tentative already.

Healing an approximate query (``tentative=False``) is the same without a note and without output: main is
within its bound, so its output is valid. If no twin can finish, main continues as it is. A restarted
query finds earlier losses in its account, and starts a twin for them.

This module has the protocol's state, events and instructions; the steps are in
:mod:`tether.protocols.take_over_steps`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tether.core.ids import NEVER, Epoch

Strategy = Literal["process", "delay", "suspend"]
"""How main and twin share the cluster (DPC 2005 §5): ``process``, main keeps its pace and the twin takes
what is left; ``delay``, both run and main may be later; ``suspend``, main waits for the twin."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The durable note, in addition to Spark's logs and the commit log."""

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
    """The protocol's state."""

    phase: Phase = "whole"
    main: Epoch = NEVER
    """Last epoch that main has finished."""
    note: Note | None = None
    """The note, as it is durable or about to be."""
    twins: int = 0
    """Number of twins started so far."""
    twin: Epoch | None = None
    """Last epoch that the twin has finished; None without a twin."""
    closest: int | None = None
    """Smallest number of epochs that this twin has been behind; None until it has run one."""
    closest_at: Epoch = NEVER
    """The epoch of main at that time."""
    patient_until: Epoch = NEVER
    """Under ``delay`` main waits after this epoch at the latest, once the twin has run one."""
    stopped: Epoch | None = None
    """The epoch at whose end main is held, if it is."""
    tentative: bool = True
    """Whether main's rows are tentative until the take-over."""
    strategy: Strategy = "delay"

    @property
    def behind(self) -> int:
        """Number of epochs that the twin is behind main."""
        start = self.note.snapshot if self.note is not None else self.main
        return self.main - (start if self.twin is None else self.twin)

    def kind(self, epoch: Epoch) -> Literal["stable", "tentative"]:
        """The kind of main's rows of an epoch."""
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
    """Main has finished an epoch."""

    epoch: Epoch


class TwinEnded(msgspec.Struct, frozen=True, kw_only=True, tag="twin-ended"):
    """The twin has finished an epoch, and its stable output of it, if any, has been given."""

    epoch: Epoch
    twin: int


class TwinLost(msgspec.Struct, frozen=True, kw_only=True, tag="twin-lost"):
    """The twin has failed."""

    twin: int


class Hopeless(msgspec.Struct, frozen=True, kw_only=True, tag="hopeless"):
    """Twins keep failing. Main continues without one, as it is within its bound."""

    twin: int


class MainHeld(msgspec.Struct, frozen=True, kw_only=True, tag="main-held"):
    """Main is held at the end of this epoch, and Spark has committed the epoch."""

    epoch: Epoch


class TwinSaved(msgspec.Struct, frozen=True, kw_only=True, tag="twin-saved"):
    """The twin's state as of the end of an epoch is durable."""

    epoch: Epoch
    twin: int


class Recorded(msgspec.Struct, frozen=True, kw_only=True, tag="recorded"):
    """The record that names that state is durable."""

    epoch: Epoch


class NoteRemoved(msgspec.Struct, frozen=True, kw_only=True, tag="note-removed"):
    """The note has been removed durably."""


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
    """Make this note durable in place of any other, then report it."""

    note: Note


class StartTwin(msgspec.Struct, frozen=True, kw_only=True, tag="start-twin"):
    """Start a run from the snapshot of an epoch; its first epoch is the one after."""

    twin: int
    snapshot: Epoch


class EndTwin(msgspec.Struct, frozen=True, kw_only=True, tag="end-twin"):
    """Stop the twin, and remove its resident state."""

    twin: int


class HoldMain(msgspec.Struct, frozen=True, kw_only=True, tag="hold-main"):
    """Let main begin no further epoch; report when it is held and Spark has committed its last one."""


class SaveTwin(msgspec.Struct, frozen=True, kw_only=True, tag="save-twin"):
    """Make the twin's state as of the end of this epoch durable, without a record that names it."""

    twin: int
    epoch: Epoch


class RecordTakeOver(msgspec.Struct, frozen=True, kw_only=True, tag="record-take-over"):
    """Record the saved state as a complete snapshot in the commit log."""

    epoch: Epoch


class SwapIn(msgspec.Struct, frozen=True, kw_only=True, tag="swap-in"):
    """The twin's slots are main's from now on; the old ones are never used again."""

    twin: int
    epoch: Epoch


class RemoveNote(msgspec.Struct, frozen=True, kw_only=True, tag="remove-note"):
    """Remove the note durably, then report it."""


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
