"""A store described as plain data, for ``tether inspect``; damage is reported, never raised."""

import contextlib
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tether.backup.history import CommitHistory
from tether.backup.manifest import Manifest
from tether.backup.names import slot_key, split_slot_key
from tether.core.errors import BackupError, BackupUnreadableError
from tether.core.ids import NEVER, Epoch, Failures, FrameNumber, Lineage, Slot, epoch_after
from tether.core.losses import LossRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.backup.frames import FrameHeader, FrameRef
    from tether.backup.protocol import BackupStore

Standing = Literal["committed", "void", "uncommitted"]
"""``committed``: recovery may use it. ``void``: its epoch was run again. ``uncommitted``: no record
names it, because its epoch is still running, its task failed, or the record is gone."""


class FrameReport(msgspec.Struct, frozen=True, kw_only=True):
    """One frame, by its header."""

    name: str
    offset: int
    bytes: int
    epoch: Epoch
    sequence: FrameNumber
    kind: str
    cause: str
    standing: Standing
    entries: int
    divergence_before: float
    divergence_after: float
    age_seconds: float


class SlotReport(msgspec.Struct, frozen=True, kw_only=True):
    """One slot and all of its frames, oldest first."""

    operator: str
    slot: Slot
    failures: Failures
    """k."""
    theta: float
    """θ in force: what losing the slot's resident state costs at most. Infinite if unknown."""
    spent: float
    """Most divergence that all its losses have cost."""
    losses: list[LossRecord]
    """Every one of them, oldest first, with what it cost."""
    lineage: Lineage
    chain_length: int
    """Frames that a recovery would read now."""
    bytes: int
    frames: list[FrameReport]


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """A description of a store; nothing is changed."""

    manifest: Manifest | None
    last_epoch: Epoch | None
    """Newest epoch in the commit log."""
    bytes_used: int
    slots: list[SlotReport]
    frames_by_cause: dict[str, int]
    bytes_by_cause: dict[str, int]
    damage: list[str]
    """What cannot be read, one line each, also where another copy makes it good; empty for a sound
    store."""


def describe_store(store: "BackupStore", *, verify: bool = False) -> StoreReport:
    """Describe a store; nothing in it is changed.

    Args:
        store: Any store, also a damaged or half-empty one, also one in use.
        verify: Read every frame whole and check its state. Else only heads are checked, and that
            the frames which the commit log names are there.

    Example:
        >>> from tether.backup.objects import ObjectStore
        >>> describe_store(ObjectStore("memory://doctest-inspect")).damage
        []
    """
    damage: list[str] = []
    manifest, history, bytes_used = None, CommitHistory(), 0
    with _reported(damage, "manifest"):
        manifest = store.read_manifest()
    with _reported(damage, "commit log"):
        log = store.read_commits()
        history = log.history
        damage.extend(f"commit log: {note}" for note in log.damaged)
    with _reported(damage, "size"):
        bytes_used = store.bytes_used()

    found: dict[FrameRef, FrameHeader] = {}
    with _reported(damage, "frames"):
        for ref, header in store.frames():
            with _reported(damage, f"{ref.name} at {ref.offset}"):
                if isinstance(header, BackupUnreadableError):
                    raise header
                found[ref] = header
                if verify:
                    store.read(ref)
    lost = history.live_frames() - found.keys()
    damage.extend(
        f"{ref.name} at {ref.offset}: committed, but missing or unreadable."
        for ref in sorted(lost, key=lambda ref: (ref.name, ref.offset))
    )

    slots = _slot_reports(found, history)
    frames_by_cause: Counter[str] = Counter()
    bytes_by_cause: Counter[str] = Counter()
    for frame in (frame for slot in slots for frame in slot.frames):
        frames_by_cause[frame.cause] += 1
        bytes_by_cause[frame.cause] += frame.bytes
    return StoreReport(
        manifest=manifest,
        last_epoch=history.last_epoch,
        bytes_used=bytes_used,
        slots=slots,
        frames_by_cause=dict(frames_by_cause),
        bytes_by_cause=dict(bytes_by_cause),
        damage=damage,
    )


def as_plain(report: StoreReport) -> dict[str, Any]:
    """The report as numbers, texts, lists and dictionaries, fit for JSON.

    JSON has no infinity: one is the word "inf", as in a policy's description.
    """
    plain: dict[str, Any] = _finite(msgspec.to_builtins(report))
    return plain


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return "inf" if value == math.inf else value


@contextlib.contextmanager
def _reported(damage: list[str], where: str) -> "Iterator[None]":
    """Turn an error inside the block into a line of the report."""
    try:
        yield
    except BackupError as error:
        damage.append(f"{where}: {error.what} {error.why}".rstrip())


def _slot_reports(found: "dict[FrameRef, FrameHeader]", history: CommitHistory) -> list[SlotReport]:
    live, void = history.live_frames(), history.void_frames()
    frames: dict[str, list[FrameReport]] = {key: [] for key in history.slots}
    for ref, header in found.items():
        key = slot_key(header.operator, header.slot)
        standing: Standing = (
            "committed" if ref in live else "void" if ref in void else "uncommitted"
        )
        frames.setdefault(key, []).append(_frame_report(ref, header, standing))
    next_epoch = epoch_after(NEVER if history.last_epoch is None else history.last_epoch)
    reports = []
    for key in sorted(frames, key=split_slot_key):
        operator, slot = split_slot_key(key)
        facts = history.slot_facts(operator, slot, next_epoch)
        losses = sorted(history.losses(operator, slot), key=lambda loss: loss.epoch)
        of_slot = sorted(frames[key], key=lambda frame: (frame.epoch, frame.sequence))
        reports.append(
            SlotReport(
                operator=operator,
                slot=slot,
                failures=facts.failures,
                theta=facts.theta,
                spent=sum((loss.cost for loss in losses), 0.0),
                losses=losses,
                lineage=facts.lineage,
                chain_length=len(history.chain(operator, slot, next_epoch)),
                bytes=sum(frame.bytes for frame in of_slot),
                frames=of_slot,
            )
        )
    return reports


def _frame_report(ref: "FrameRef", header: "FrameHeader", standing: Standing) -> FrameReport:
    return FrameReport(
        name=ref.name,
        offset=ref.offset,
        bytes=ref.length,
        epoch=header.epoch,
        sequence=header.sequence,
        kind=header.kind,
        cause=header.cause,
        standing=standing,
        entries=header.entries,
        divergence_before=header.divergence_before,
        divergence_after=header.divergence_after,
        age_seconds=max(0.0, time.time() - header.written_at),
    )
