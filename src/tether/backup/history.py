"""What the commit log means: which frames a slot is restored from, and which nobody needs.

Pure: no files, no clock. Records are applied in log order. When a record of epoch e arrives, every
earlier record of an epoch >= e is void, for the epoch is being run again and its old frames hold
rows that will be counted once more (DESIGN §3, "The bound is strict"). A record that amends its
epoch voids only later ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.backup.commits import CommitRecord, CommitSnapshot, SlotCommit
from tether.backup.names import slot_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tether.backup.frames import FrameRef


class SlotFacts(NamedTuple):
    """The newest small facts of a slot."""

    failures: int
    """k, the highest ever recorded, void records included: a crash never loses count."""
    lineage: str
    policy_state: bytes
    exact_epoch: int | None = None
    """The epoch as of whose end the committed frames hold the whole state, where they do."""
    extra: float = 0.0
    """See :attr:`SlotCommit.extra`."""


class CompleteSnapshot(NamedTuple):
    """A snapshot that can be gone back to."""

    number: int
    epoch: int
    """Its parts hold the states as of the end of this epoch."""
    items: dict[str, FrameRef]
    """Feedback items in flight to each slot, by slot key."""


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
    * ``failures`` never falls, whatever is voided, pruned or compacted;
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
        self._live: list[_Applied] = []  # epochs never fall
        self._void: dict[FrameRef, None] = {}  # a dict, to keep the order
        self._failures: dict[str, int] = {}
        self._gaps: list[tuple[int, str]] = []
        self._next_order = 0
        for record in records:
            self.apply(record)

    @property
    def last_epoch(self) -> int | None:
        """Epoch of the newest record that is not void.

        A driver that is asked by Spark for an epoch beyond the next one knows that records are
        missing.
        """
        return self._live[-1].record.epoch if self._live else None

    @property
    def newest_record(self) -> tuple[int, str] | None:
        """Epoch and run of the newest record that is not void."""
        return (self._live[-1].record.epoch, self._live[-1].record.run) if self._live else None

    def holds(self, epoch: int, run: str) -> bool:
        """Whether a record of that run of an epoch is among those that are not void."""
        return any((a.record.epoch, a.record.run) == (epoch, run) for a in self._live)

    @property
    def slots(self) -> list[str]:
        """Keys of all slots ever seen."""
        return sorted(self._failures)

    @property
    def gaps(self) -> list[str]:
        """What was found where records are lost, oldest first."""
        return [note for _, note in self._gaps]

    # --- building ----------------------------------------------------------------------------

    def apply(self, record: CommitRecord) -> None:
        """Add a record; void those of its epoch (unless it amends them) and later ones."""
        if record.complete is not None:
            self._insert(record)
        else:
            valid = record.epoch if record.amends else record.epoch - 1
            while self._live and self._live[-1].record.epoch > valid:
                self._void.update(dict.fromkeys(_frames_of(self._live.pop().record)))
            self._live.append(_Applied(self._next_order, record))
        self._next_order += 1
        for key, commit in record.slots.items():
            self._failures[key] = max(self._failures.get(key, 0), commit.failures)

    def _insert(self, record: CommitRecord) -> None:
        """A complete snapshot takes its place among the epochs, and voids nothing.

        If its epoch was undone meanwhile, nobody may write such a record: the coordinator gives up
        what is not complete when slots go back.
        """
        place = len(self._live)
        while place and self._live[place - 1].record.epoch > record.epoch:
            place -= 1
        self._live.insert(place, _Applied(self._next_order, record))

    def mark_gap(self, note: str) -> None:
        """Remember that records are missing here.

        They may have named frames, so a chain whose base is older is no longer known to be whole:
        see :meth:`lost_since`.
        """
        self._gaps.append((self._next_order, note))

    # --- restoring ---------------------------------------------------------------------------

    def generations(self, operator: str, slot: int, before_epoch: int) -> list[list[SlotCommit]]:
        """Committed frames of a slot below an epoch, oldest generation first; none is empty."""
        generations: list[list[SlotCommit]] = []
        for commit in self._framed(slot_key(operator, slot), before_epoch):
            if commit.kind == "full" or not generations:
                generations.append([])
            generations[-1].append(commit)
        return generations

    def chain(self, operator: str, slot: int, before_epoch: int) -> list[SlotCommit]:
        """What restores a slot that is to run ``before_epoch``: the newest generation."""
        generations = self.generations(operator, slot, before_epoch)
        return generations[-1] if generations else []

    def previous_generation(self, operator: str, slot: int, before_epoch: int) -> list[SlotCommit]:
        """The generation to fall back to when the base of the chain cannot be read."""
        generations = self.generations(operator, slot, before_epoch)
        return generations[-2] if len(generations) > 1 else []

    def lost_since(self, base: SlotCommit | None) -> list[str]:
        """Notes of lost records after a chain's base; ``None`` is the state operators start with.

        A base that is a partial frame stands on that starting state too.
        """
        born = -1
        if base is not None and base.kind == "full":
            orders = (a.order for a in self._live if base in a.record.slots.values())
            born = next(orders, -1)
        return [note for order, note in self._gaps if order > born]

    def slot_facts(self, operator: str, slot: int, before_epoch: int) -> SlotFacts:
        """Newest facts of a slot that is to run ``before_epoch``."""
        key = slot_key(operator, slot)
        failures = self._failures.get(key, 0)
        for _, record in reversed(self._live):
            if record.epoch < before_epoch and key in record.slots:
                commit = record.slots[key]
                exact = record.epoch if commit.exact else None
                return SlotFacts(failures, commit.lineage, commit.policy_state, exact, commit.extra)
        return SlotFacts(failures, "", b"")

    def complete_snapshot(self, before_epoch: int) -> CompleteSnapshot | None:
        """The newest complete snapshot that a query which is to run ``before_epoch`` can use."""
        for _, record in reversed(self._live):
            if record.complete is not None and record.epoch < before_epoch:
                return CompleteSnapshot(record.complete, record.epoch, record.items)
        return None

    def logged_rows(
        self, operator: str, slot: int, after_epoch: int, before_epoch: int
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
        return {frame for applied in self._live for frame in _frames_of(applied.record)}

    def void_frames(self) -> set[FrameRef]:
        """Frames that only void records name, as far as these have not been pruned."""
        return set(self._void) - self.live_frames()

    def droppable(self, committed_epoch: int) -> list[FrameRef]:
        """Frames that nothing can need once Spark has committed ``committed_epoch``.

        The two newest generations that are wholly below it stay, and all that is newer: an
        uncommitted full frame never costs the elders that a re-run of its epoch would need.
        """
        needed = self._needed(committed_epoch)
        frames = dict.fromkeys(self._void)
        for applied in self._live:
            frames.update(dict.fromkeys(_frames_of(applied.record)))
        return [frame for frame in frames if frame not in needed]

    def prune(self, committed_epoch: int) -> None:
        """Forget void records and those that only name what ``droppable`` gives.

        Call it after the droppable frames have been dropped; the counts of failures stay.
        """
        needed = self._needed(committed_epoch)
        newest: dict[str, int] = {}  # the order of each slot's newest committed facts
        for applied in self._live:
            if applied.record.epoch <= committed_epoch:
                newest.update(dict.fromkeys(applied.record.slots, applied.order))
        newest_complete = self._newest_complete()
        kept = []
        for applied in self._live:
            record = applied.record
            if record.epoch <= committed_epoch:
                slots = {
                    key: commit
                    for key, commit in record.slots.items()
                    if newest[key] == applied.order or commit.frame in needed
                }
                items = {key: frame for key, frame in record.items.items() if frame in needed}
                old = record.complete is not None and record is not newest_complete
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

    def snapshot(self, committed_epoch: int) -> CommitSnapshot:
        """All that can still matter, as one entry of a log; this history is pruned too."""
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
        return CommitSnapshot(records=records, failures=dict(self._failures), gaps=gaps)

    @classmethod
    def from_snapshot(cls, snapshot: CommitSnapshot) -> CommitHistory:
        """The history that a snapshot was made of, less what was pruned."""
        history = cls()
        gaps = sorted(snapshot.gaps)
        for count, record in enumerate(snapshot.records):
            while gaps and gaps[0][0] <= count:
                history.mark_gap(gaps.pop(0)[1])
            history.apply(record)
        for _, note in gaps:
            history.mark_gap(note)
        for key, failures in snapshot.failures.items():
            history._failures[key] = max(history._failures.get(key, 0), failures)
        return history

    # --- inside ------------------------------------------------------------------------------

    def _framed(self, key: str, before_epoch: int) -> Iterator[SlotCommit]:
        """Live commits of a slot that name state, in order, each frame once."""
        seen = set()
        for _, record in self._live:
            if record.epoch >= before_epoch:
                return
            commit = record.slots.get(key)
            if commit is None or commit.frame is None or commit.kind == "recovered":
                continue
            if commit.frame not in seen:
                seen.add(commit.frame)
                yield commit

    def _needed(self, committed_epoch: int) -> set[FrameRef]:
        """Frames that recovery may ask for when any epoch above ``committed_epoch`` is run."""
        frames: dict[str, list[FrameRef]] = {}
        bases: dict[str, list[int]] = {}  # positions of the committed full frames
        for _, record in self._live:
            for key, commit in record.slots.items():
                if commit.frame is None:
                    continue
                of_slot = frames.setdefault(key, [])
                if commit.kind == "full" and record.epoch <= committed_epoch:
                    bases.setdefault(key, []).append(len(of_slot))
                of_slot.append(commit.frame)
        needed: set[FrameRef] = set()
        for key, of_slot in frames.items():
            of_bases = bases.get(key, [])
            needed.update(of_slot[of_bases[-2] if len(of_bases) > 1 else 0 :])
        return needed | self._needed_by_snapshot() | self._needed_rows(committed_epoch)

    def _newest_complete(self) -> CommitRecord | None:
        complete = (a.record for a in reversed(self._live) if a.record.complete is not None)
        return next(complete, None)

    def _needed_by_snapshot(self) -> set[FrameRef]:
        """All that the newest complete snapshot is restored from, whatever has come since."""
        record = self._newest_complete()
        if record is None:
            return set()
        chains: dict[str, list[FrameRef]] = {}
        for _, earlier in self._live:
            for key, commit in earlier.slots.items():
                if earlier.epoch <= record.epoch and commit.frame and commit.kind != "recovered":
                    if commit.kind == "full":
                        chains[key] = []
                    chains.setdefault(key, []).append(commit.frame)
        return {frame for chain in chains.values() for frame in chain} | set(record.items.values())

    def _needed_rows(self, committed_epoch: int) -> set[FrameRef]:
        """Logged rows that no committed backup of their slot holds."""
        saved: dict[str, int] = {}
        for _, record in self._live:
            for key, commit in record.slots.items():
                if commit.exact and commit.frame is not None and record.epoch <= committed_epoch:
                    saved[key] = record.epoch
        return {
            frame
            for _, record in self._live
            if record.complete is None
            for key, frame in record.items.items()
            if record.epoch > saved.get(key, -1)
        }


def _frames_of(record: CommitRecord) -> list[FrameRef]:
    states = [commit.frame for commit in record.slots.values() if commit.frame is not None]
    return [*states, *record.items.values()]
