"""What the commit log means: which frames restore a slot, and which are not needed any more.

Pure: no files, no clock. Records are applied in log order. When a record of epoch e arrives, every
earlier record of an epoch >= e is void, because the epoch is run again and its old frames contain rows
that will be counted once more (DESIGN §3, "The bound is strict"). A record that amends its epoch voids
only later ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.backup.commits import CommitRecord, CommitSnapshot, SlotCommit
from tether.backup.names import slot_key
from tether.backup.recorded import UNTOLD, CompleteSnapshot, SlotFacts
from tether.backup.retention import frames_of, needed, newest_complete
from tether.core.ids import (
    Epoch,
    Failures,
    Lineage,
    Slot,
    each_slot,
    epoch_after,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tether.backup.frames import FrameRef
    from tether.core.losses import LossRecord


class _Applied(NamedTuple):
    order: int
    record: CommitRecord


class CommitHistory:
    """The live part of a commit log.

    A slot's committed frames fall into *generations*: a full frame and the partial ones after it.
    Partial frames before the first full one are a generation too; its base is the state that the
    operator starts with.

    Guarantees:

    * ``chain`` never names a frame of an epoch >= ``before_epoch``, nor a void one;
    * ``failures`` never decreases and ``losses`` keeps every loss, whatever is voided, pruned or
      compacted, except for slots that were healed;
    * ``droppable`` never names a frame that ``chain`` or ``previous_generation`` can name for any
      epoch that Spark can still ask for, that is any above ``committed_epoch``.

    Example:
        >>> from tether.backup.frames import FrameRef
        >>> history = CommitHistory()
        >>> for epoch, kind in enumerate(["full", "partial", "partial"]):
        ...     frame = FrameRef(f"slots/count/0/{epoch}.frame", 0, 9)
        ...     commit = SlotCommit(epoch=epoch, frame=frame, kind=kind, divergence_after=0.5)
        ...     history.apply(CommitRecord(epoch=epoch, run="r", slots={"count/0": commit}))
        >>> [commit.epoch for commit in history.chain("count", 0, before_epoch=2)]
        [0, 1]
    """

    def __init__(self, records: Iterable[CommitRecord] = ()) -> None:
        self._live: list[_Applied] = []  # in order of epochs
        self._void: dict[FrameRef, None] = {}  # a dict, to keep the order
        self._failures: dict[str, Failures] = {}
        self._losses: dict[str, dict[str, LossRecord]] = {}  # by slot, and by what was lost
        self._losses_in_all: dict[str, int] = {}
        self._gaps: list[tuple[int, str]] = []
        self._next_order = 0
        self.every_epoch_from: Epoch | None = None
        """See :attr:`CommitSnapshot.every_epoch_from`."""
        for record in records:
            self.apply(record)

    def fork(self) -> CommitHistory:
        """A second history that says the same now, and is continued apart from this one."""
        other = CommitHistory()
        # Records and losses never change, so both histories may hold the same ones.
        other._live, other._void = list(self._live), dict(self._void)
        other._failures = dict(self._failures)
        other._losses = {key: dict(losses) for key, losses in self._losses.items()}
        other._losses_in_all = dict(self._losses_in_all)
        other._gaps, other._next_order = list(self._gaps), self._next_order
        other.every_epoch_from = self.every_epoch_from
        return other

    @property
    def last_epoch(self) -> Epoch | None:
        """Epoch of the newest record that is not void."""
        return self._live[-1].record.epoch if self._live else None

    def runs(self) -> Iterator[str]:
        """Runs that wrote the records that are not void, newest first."""
        return (record.run for _, record in reversed(self._live))

    @property
    def slots(self) -> list[str]:
        """Keys of all slots ever seen."""
        return sorted(self._failures)

    @property
    def gaps(self) -> list[str]:
        """Notes about places where records are lost, oldest first."""
        return [note for _, note in self._gaps]

    # --- building ----------------------------------------------------------------------------

    def apply(self, record: CommitRecord) -> None:
        """Add a record; void those of its epoch (unless it amends them) and later ones."""
        if record.complete is not None:
            self._insert(record)
        else:
            valid = record.epoch if record.amends else record.epoch - 1
            while self._live and self._live[-1].record.epoch > valid:
                self._void.update(dict.fromkeys(frames_of(self._live.pop().record)))
            self._live.append(_Applied(self._next_order, record))
        self._next_order += 1
        if record.heals:
            for key in record.slots:
                self._failures[key], self._losses[key], self._losses_in_all[key] = (
                    Failures(0),
                    {},
                    0,
                )
        for key, commit in record.slots.items():
            self._count(key, commit.failures, commit.losses)
            in_all = max(self._losses_in_all.get(key, 0), commit.losses_in_all)
            self._losses_in_all[key] = in_all

    def _count(self, key: str, failures: Failures, losses: Iterable[LossRecord]) -> None:
        """Add to the permanent account. A loss that is found again replaces its earlier entry."""
        self._failures[key] = max(self._failures.get(key, Failures(0)), failures)
        self._losses.setdefault(key, {}).update({loss.lost: loss for loss in losses})

    def _insert(self, record: CommitRecord) -> None:
        """A complete snapshot takes its place among the epochs, and voids nothing.

        Such a record is never written for an epoch that has been undone, because the coordinator gives
        up unfinished snapshots when slots go back.
        """
        place = len(self._live)
        while place and self._live[place - 1].record.epoch > record.epoch:
            place -= 1
        self._live.insert(place, _Applied(self._next_order, record))

    def mark_gap(self, note: str) -> None:
        """Remember that records are missing here.

        They may have named frames, so a chain with an older base may be incomplete: see
        :meth:`lost_since`.
        """
        self._gaps.append((self._next_order, note))

    def set_every_epoch(self, every_epoch: bool, committed_epoch: Epoch) -> bool:
        """Set whether every epoch after a committed one leaves a record; returns whether it changed."""
        if every_epoch == (self.every_epoch_from is not None):
            return False
        self.every_epoch_from = epoch_after(committed_epoch) if every_epoch else None
        return True

    # --- restoring ---------------------------------------------------------------------------

    def generations(self, operator: str, slot: Slot, before_epoch: Epoch) -> list[list[SlotCommit]]:
        """Committed frames of a slot below an epoch, oldest generation first; none is empty."""
        generations: list[list[SlotCommit]] = []
        for commit in self._framed(slot_key(operator, slot), before_epoch):
            if commit.kind == "full" or not generations:
                generations.append([])
            generations[-1].append(commit)
        return generations

    def chain(self, operator: str, slot: Slot, before_epoch: Epoch) -> list[SlotCommit]:
        """The frames that restore a slot before it runs ``before_epoch``: the newest generation."""
        generations = self.generations(operator, slot, before_epoch)
        return generations[-1] if generations else []

    def previous_generation(
        self, operator: str, slot: Slot, before_epoch: Epoch
    ) -> list[SlotCommit]:
        """The generation to fall back to when the base of the chain cannot be read."""
        generations = self.generations(operator, slot, before_epoch)
        return generations[-2] if len(generations) > 1 else []

    def lost_since(self, base: SlotCommit | None) -> list[str]:
        """Notes of lost records after a chain's base; ``None`` is the initial state.

        A base that is a partial frame depends on the initial state too.
        """
        born = -1
        if base is not None and base.kind == "full":
            orders = (a.order for a in self._live if base in a.record.slots.values())
            born = next(orders, -1)
        return [note for order, note in self._gaps if order > born]

    def in_doubt(self, operator: str, slots: int, before_epoch: Epoch) -> frozenset[Slot]:
        """Slots whose chain may lack frames, because records that could name them are lost."""
        if not self._gaps:
            return frozenset()
        chains = {slot: self.chain(operator, slot, before_epoch) for slot in each_slot(slots)}
        return frozenset(
            slot for slot, chain in chains.items() if self.lost_since(chain[0] if chain else None)
        )

    def slot_facts(self, operator: str, slot: Slot, before_epoch: Epoch) -> SlotFacts:
        """Newest recorded facts of a slot before it runs ``before_epoch``."""
        key = slot_key(operator, slot)
        failures = self._failures.get(key, Failures(0))
        for _, record in reversed(self._live):
            if record.epoch < before_epoch and key in record.slots:
                commit = record.slots[key]
                return SlotFacts(
                    failures,
                    commit.lineage,
                    commit.policy_state,
                    exact_epoch=record.epoch if commit.exact else None,
                    epoch=record.epoch,
                    divergence=commit.divergence_after,
                    theta=commit.theta,
                    under=commit.under,
                    items_at_risk=commit.items_at_risk,
                )
        return SlotFacts(failures, Lineage(""), b"")

    def losses(self, operator: str, slot: Slot) -> list[LossRecord]:
        """The slot's account: every loss that was ever committed, each once.

        A loss stays in it even if its record is void: the epoch in which it was found is run again, and
        finds it again under the same name, or continues from what was saved after it. If later records
        count more losses than are left, one without a limit stands for the others.
        """
        return self._account(slot_key(operator, slot))

    def _account(self, key: str) -> list[LossRecord]:
        account = dict(self._losses.get(key, {}))
        if len(account) < self._losses_in_all.get(key, 0):
            account.setdefault(UNTOLD.lost, UNTOLD)
        return list(account.values())

    def complete_snapshot(self, before_epoch: Epoch) -> CompleteSnapshot | None:
        """The newest complete snapshot that can be used before ``before_epoch`` runs."""
        for _, record in reversed(self._live):
            if record.complete is not None and record.epoch < before_epoch:
                return CompleteSnapshot(record.complete, record.epoch, record.items)
        return None

    def logged_rows(
        self, operator: str, slot: Slot, after_epoch: Epoch, before_epoch: Epoch
    ) -> list[tuple[int, FrameRef]]:
        """Rows logged for a slot in the epochs between the two, oldest first."""
        key = slot_key(operator, slot)
        return [
            (record.epoch, record.items[key])
            for _, record in self._live
            if after_epoch < record.epoch < before_epoch
            and record.complete is None
            and key in record.items
        ]

    # --- forgetting --------------------------------------------------------------------------

    def live_frames(self) -> set[FrameRef]:
        """Every frame that a record which is not void names."""
        return {frame for applied in self._live for frame in frames_of(applied.record)}

    def void_frames(self) -> set[FrameRef]:
        """Frames that only void records name, as far as these have not been pruned."""
        return set(self._void) - self.live_frames()

    def droppable(self, committed_epoch: Epoch) -> list[FrameRef]:
        """Frames that are not needed once Spark has committed ``committed_epoch``.

        The two newest generations that are wholly below it stay, and all that is newer: an uncommitted
        full frame does not make older frames droppable that a second run of its epoch would need.
        """
        kept_frames = needed(self._records(), committed_epoch)
        frames = dict.fromkeys(self._void)
        for applied in self._live:
            frames.update(dict.fromkeys(frames_of(applied.record)))
        return [frame for frame in frames if frame not in kept_frames]

    def prune(self, committed_epoch: Epoch) -> None:
        """Forget void records and those that only name what ``droppable`` gives.

        Call it after the droppable frames have been dropped; the counts of failures stay.
        """
        kept_frames = needed(self._records(), committed_epoch)
        newest: dict[str, int] = {}  # the order of each slot's newest committed facts
        for applied in self._live:
            if applied.record.epoch <= committed_epoch:
                newest.update(dict.fromkeys(applied.record.slots, applied.order))
        complete = newest_complete(self._records())
        kept = []
        for applied in self._live:
            record = applied.record
            if record.epoch <= committed_epoch:
                slots = {
                    key: commit
                    for key, commit in record.slots.items()
                    if newest[key] == applied.order or commit.frame in kept_frames
                }
                items = {key: frame for key, frame in record.items.items() if frame in kept_frames}
                old = record.complete is not None and record is not complete
                record = msgspec.structs.replace(
                    record, slots=slots, items=items, complete=None if old else record.complete
                )
                if old:
                    record = msgspec.structs.replace(record, amends=True)
            keep = record.slots or record.items or record.complete is not None
            if keep or applied is self._live[-1]:
                kept.append(_Applied(applied.order, record))
        self._live = kept
        self._void.clear()

    def snapshot(self, committed_epoch: Epoch) -> CommitSnapshot:
        """Everything that is still needed, as one entry of a log; this history is pruned too."""
        self.prune(committed_epoch)
        gaps = [
            (
                # A complete snapshot may stand before records that are older than it.
                1 + max((n for n, a in enumerate(self._live) if a.order < order), default=-1),
                note,
            )
            for order, note in self._gaps
        ]
        records = [applied.record for applied in self._live]
        losses = {key: self._account(key) for key in self._losses if self._account(key)}
        return CommitSnapshot(
            records=records,
            failures=dict(self._failures),
            losses=losses,
            gaps=gaps,
            every_epoch_from=self.every_epoch_from,
        )

    @classmethod
    def from_snapshot(cls, snapshot: CommitSnapshot) -> CommitHistory:
        """The history of a snapshot, without what was pruned."""
        history = cls()
        history.every_epoch_from = snapshot.every_epoch_from
        gaps = sorted(snapshot.gaps)
        for count, record in enumerate(snapshot.records):
            while gaps and gaps[0][0] <= count:
                history.mark_gap(gaps.pop(0)[1])
            history.apply(record)
        for _, note in gaps:
            history.mark_gap(note)
        for key, failures in snapshot.failures.items():
            history._count(key, failures, snapshot.losses.get(key, ()))
        return history

    # --- inside ------------------------------------------------------------------------------

    def _records(self) -> list[CommitRecord]:
        return [applied.record for applied in self._live]

    def _framed(self, key: str, before_epoch: Epoch) -> Iterator[SlotCommit]:
        """Live commits of a slot that name state, in order, each frame once."""
        seen = set()
        for _, record in self._live:
            if record.epoch >= before_epoch:
                return
            commit = record.slots.get(key)
            if commit is None or commit.frame is None:
                continue
            if commit.frame not in seen:
                seen.add(commit.frame)
                yield commit
