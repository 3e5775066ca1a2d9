"""Divides the state of an operator by key, from its old slots to its new ones.

Each entry goes to the slot that its key belongs to now, by the same hash that routes rows. This is
possible where an entry belongs to one key; for other state the reason is given.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from tether.backup.commits import SlotCommit
from tether.backup.frames import FrameHeader
from tether.backup.manifest import StoredOperator
from tether.backup.names import slot_key
from tether.backup.recovery import recover_chain, require_whole
from tether.core.errors import ChangedProgramError
from tether.core.ids import Epoch, Failures, FrameNumber, Lineage, Slot, each_slot, epoch_before
from tether.declared import counted
from tether.policies.terms import terms_of
from tether.state.keyed import plan_keys
from tether.state.norms import DURABLE
from tether.state.number import Number
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tether.backup.frames import Frame
    from tether.backup.history import CommitHistory
    from tether.core.graph import Graph
    from tether.core.losses import LossRecord
    from tether.engine.operators import QueryOperator
    from tether.engine.query.commit_log import OpenCommitLog
    from tether.policies.recovery import Recovery

_DIVISIBLE = ("table", "set")
_NO_TERMS = "rescale"
"""A name of terms that no policy has."""


class Homes(Protocol):
    """Knows the slot of a key, as a cluster does."""

    def slots_of(self, operator: str, keys: pa.RecordBatch, slots: int) -> NDArray[np.int64]:
        """The slot of each key, if the operator had this number of slots."""
        ...


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The properties of an operator that its stored state depends on."""

    name: str
    slots: int
    """Its new number of slots."""
    in_program: int
    """The number of slots in the program."""
    state_specs: Mapping[str, Any]
    key_types: Mapping[str, str]
    refused: str
    """Why its state cannot be divided by key; empty if it can."""
    recovery: Recovery
    terms: str = ""
    """Name of the terms that its slots are under; empty where that is not known."""
    senders: tuple[str, ...] = ()
    """Operators whose rows reach it, directly or through others, feedback included."""

    alike: Mapping[str, str] = field(default_factory=dict)
    """Numbers that each slot may have from any other: by what they are put together, "max" or "min"."""

    @property
    def told(self) -> StoredOperator:
        """Its entry in the manifest."""
        return StoredOperator(
            refused=self.refused,
            recovery=self.recovery.name,
            senders=self.senders,
            alike=dict(self.alike),
        )


class Change(NamedTuple):
    """An operator whose stored state is in another number of slots than it will have."""

    operator: Stored
    before: int


def stored(one: QueryOperator, graph: Graph) -> Stored:
    """The stored properties of an operator of a query."""
    senders, found = {one.name}, {one.name}
    while found:
        found = {edge.source for edge in graph.edges if edge.target in found} - senders
        senders |= found
    return Stored(
        name=one.name,
        slots=one.slots,
        in_program=one.in_program,
        state_specs=one.state_specs,
        key_types=one.key_types,
        refused=_indivisible(one),
        recovery=one.policy.recovery,
        terms=terms_of(one.policy, one.placement),
        senders=tuple(sorted(senders - {one.name})),
        alike=one.alike,
    )


def refusal(change: Change, why: str, do: str = "") -> ChangedProgramError:
    """Why an operator cannot have another number of slots."""
    name, before, after = change.operator.name, change.before, change.operator.slots
    return ChangedProgramError(
        f"The state of {name!r} cannot go from {before} slots to {after}.",
        why=f"{why[0].upper()}{why[1:]}",
        do=do or f"Start it with parallelism={before}, or with an empty backup and checkpoint.",
    )


def _indivisible(one: QueryOperator) -> str:
    """Why parts of an operator's state cannot be assigned to keys; empty if they can."""
    policy = one.policy
    whys = {
        "its policy keeps no backups, through which state could move.": not policy.keeps_backups,
        "after a loss it is healed from an exact state of earlier epochs, in the slots of then.": (
            policy.heal is not None
        ),
        f"the policy {policy.name} numbers epochs of two kinds.": policy.availability is not None,
        "it has no key, so any slot may hold any part of the state.": not one.keyed,
        "it sends feedback, which waits by slot.": one.feedback_to or one.feedback_arrow,
        "its window counts the rows of a slot.": one.window and one.window.by == "items",
    }
    for name, spec in one.state_specs.items():
        if spec["kind"] == "number" and name in one.alike:
            weight = spec["weights"].get("value", 1.0)
            whys[f"its number {name!r} is alike in all slots, but a loss may change it in one."] = (
                0 < weight < DURABLE
            )
            continue
        divisible = spec["kind"] in _DIVISIBLE
        missing = sorted(set(one.key_types) - set(spec["keys"])) if divisible else []
        whys[
            f"its state {name!r} is a {spec['kind']}, of which nobody can say which part belongs to "
            "which key."
        ] = not divisible
        whys[f"the key of its state {name!r} lacks the columns {missing}."] = missing
    return next((why for why, true in whys.items() if true), "")


def divided(
    change: Change, log: OpenCommitLog, homes: Homes, query_id: str, epoch: Epoch
) -> dict[str, SlotCommit]:
    """Write a whole frame of every new slot; return their entries for the commit record.

    Args:
        change: The operator; its whole state as of the end of the epoch before is in the log.
        log: The commit log.
        homes: Knows the slot of a key.
        query_id: Id of the query.
        epoch: The epoch that slots are to run next.

    Raises:
        ChangedProgramError: Keys are not in the slots that they belong to.
        BackupUnreadableError: Backups are damaged.
    """
    one, history = change.operator, log.history
    parts: list[dict[str, list[pa.RecordBatch]]] = [{} for _ in range(one.slots)]
    alike: dict[str, list[Any]] = {}
    sequence = FrameNumber(0)
    for slot in each_slot(change.before):
        chain = recover_chain(log.store, history, one.name, slot, epoch)
        require_whole(chain, f"Slot {slot} of {one.name!r} cannot be split.")
        sequence = max([sequence, *(frame.header.sequence for frame in chain.frames)])
        state = _restored(one, chain.frames, epoch)
        for name in one.alike:
            number = state.primitive(one.state_specs[name])
            assert isinstance(number, Number)
            alike.setdefault(name, []).append(number.value)
        for name, export in state.export_full().items():
            if name in one.alike:
                continue
            for batch in export.batches:
                _divide(change, homes, batch, parts, slot=slot, name=name)
    for name, values in alike.items():
        for content in parts:
            content[name] = _number(one, name, values, epoch)
    accounts = _accounts(change, history)
    # Under an exact policy this is a backup like any other. Under a budget it has terms that no policy
    # has, so thresholds start again, and become durable with the next epoch.
    under = (one.terms if one.recovery.exact else "") or _NO_TERMS
    commits = {}
    for slot, content in zip(each_slot(one.slots), parts, strict=True):
        lineage, account = Lineage(f"rescaled-{uuid.uuid4().hex}"), accounts[slot]
        header = FrameHeader(
            query=query_id,
            operator=one.name,
            slot=slot,
            epoch=epoch_before(epoch),
            sequence=FrameNumber(sequence + 1),
            failures=Failures(
                max(len(account), history.slot_facts(one.name, slot, epoch).failures)
            ),
            kind="full",
            cause="flush",
            attempt=uuid.uuid4().hex,
            lineage=lineage,
            divergence_before=0.0,
            divergence_after=0.0,
            carried=math.inf,  # earlier frames of this slot number hold other keys
            entries=sum(batch.num_rows for batches in content.values() for batch in batches),
            written_at=0.0,
            records=log.end.number,
        )
        commits[slot_key(one.name, slot)] = SlotCommit(
            epoch=epoch_before(epoch),
            frame=log.store.append(header, content),
            kind="full",
            carried=math.inf,
            divergence_after=0.0,
            exact=True,
            failures=header.failures,
            lineage=lineage,
            under=under,
            theta=0.0,
            losses=tuple(account),
            losses_in_all=len(account),
        )
    return commits


def _restored(one: Stored, frames: list[Frame], epoch: Epoch) -> SlotState:
    """A slot's state on the heap, made without the user's code: frames have the types of its keys."""
    state = SlotState.heap()
    for frame in frames:
        for name, batches in frame.parts.items():
            spec = one.state_specs[name]
            if name in one.alike:
                state.primitive(spec)
                continue
            for batch in batches[:1]:
                keys = pa.schema([batch.schema.field(key) for key in spec["keys"]])
                state.primitive({**spec, "keys": plan_keys(keys)[1]})
    state.begin_restore()
    for frame in frames:
        state.restore({name: batches for name, batches in frame.parts.items() if batches})
    state.finish_restore(epoch - 1)
    state.begin(epoch)
    return state


def _number(one: Stored, name: str, values: list[Any], epoch: Epoch) -> list[pa.RecordBatch]:
    """The part of a frame for a number that every slot gets."""
    state = SlotState.heap()
    number = state.primitive(one.state_specs[name])
    assert isinstance(number, Number)
    state.begin(epoch)
    number.put(max(values) if one.alike[name] == "max" else min(values))
    return state.export_full()[name].batches


def _divide(
    change: Change,
    homes: Homes,
    batch: pa.RecordBatch,
    parts: list[dict[str, list[pa.RecordBatch]]],
    *,
    slot: Slot,
    name: str,
) -> None:
    """Divide the rows of a batch among the new slots; slots without any get an empty batch."""
    one = change.operator
    keys = batch.select(list(one.key_types))
    for content in parts:
        content.setdefault(name, [batch.slice(0, 0)])
    if not batch.num_rows:
        return
    # The hash must give the old slots correctly; otherwise it cannot be trusted for the new ones.
    if (homes.slots_of(one.name, keys, change.before) != slot).any():
        raise refusal(change, f"rows of its state {name!r} are not in the slots of their keys.")
    targets = homes.slots_of(one.name, keys, one.slots)
    for target in np.unique(targets):
        rows = pa.array(np.flatnonzero(targets == target))
        parts[int(target)][name].append(batch.take(rows))


def _accounts(change: Change, history: CommitHistory) -> list[list[LossRecord]]:
    """Distribute the account of losses over the new slots."""
    one = change.operator
    of_errors = counted(one.state_specs.values())
    worst_may_count = len(of_errors) == 1 and of_errors[0].get("divergence") == "max"
    accounts: list[dict[str, LossRecord]] = [
        {loss.lost: loss for loss in history.losses(one.name, slot)}
        for slot in each_slot(one.slots)
    ]
    for slot in each_slot(change.before):
        for loss in history.losses(one.name, slot):
            prefix = f"{one.name}/"
            told = loss.lost if loss.lost.startswith(prefix) else f"{prefix}{slot}:{loss.lost}"
            for target in range(one.slots) if worst_may_count else [slot % one.slots]:
                if target != slot:
                    accounts[target][told] = msgspec.structs.replace(loss, lost=told)
    return [list(account.values()) for account in accounts]
