"""Another number of slots at a restart: the state is split and merged by key, exactly.

A query that was stopped in good order has its whole state in its backup. When it is started with another
number of slots, each entry goes to the slot that its key belongs to now. It takes three steps:

1. A whole frame of every new slot is written. (Crash: nothing names them; they are swept.)
2. One commit record names them all, and says how many slots there are now. (Crash: the record says it.)
3. The manifest says it, too.

What was lost before stays in the account: losses of a slot that is gone move to one that stays. Where
the worst entry counts and not the sum, any slot may now hold the entry that was hit, so every slot gets
all of them.
"""

from __future__ import annotations

import json
import math
import pickle
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tether.backup.commits import CommitRecord, SlotCommit
from tether.backup.frames import FrameHeader
from tether.backup.names import slot_key
from tether.backup.recovery import recover_chain, require_whole
from tether.core.errors import ChangedProgramError
from tether.core.ids import Epoch, Failures, FrameNumber, Lineage, Slot, each_slot, epoch_before
from tether.declared import counted
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from tether.backup.history import CommitHistory
    from tether.core.losses import LossRecord
    from tether.engine.operators import QueryOperator
    from tether.engine.ports import Cluster
    from tether.engine.query.commit_log import OpenCommitLog
    from tether.engine.query.lane import LanePlan

_RUN = "rescale "
"""With the new numbers of slots behind it, the run that a record of this kind names."""
_DIVISIBLE = ("table", "set")


class _Change(NamedTuple):
    """An operator whose number of slots is another one now."""

    operator: QueryOperator
    before: int


def settle_slots(
    plan: LanePlan, log: OpenCommitLog, cluster: Cluster[Any], query_id: str, epoch: Epoch
) -> None:
    """Bring the stored state to the program's numbers of slots, if they differ.

    Args:
        plan: The lane; its store has a manifest.
        log: The store's commit log, open.
        cluster: Knows the slot of a key.
        query_id: Id of the query.
        epoch: The epoch that slots are to run next.

    Raises:
        ChangedProgramError: They differ, and that was not allowed, or cannot be done with this state.
    """
    store, operators = log.store, plan.operators
    manifest = store.read_manifest()
    assert manifest is not None
    told = dict(manifest.fingerprint.get("slots", {}))
    there = {**told, **_rescaled_to(log.history)}
    changes = [
        _Change(one, there[name]) for name, one in operators.items() if there[name] != one.slots
    ]
    if changes and "slots" not in plan.settings.allow_changed:
        raise _refusal(changes[0], "its state was moved to that many slots by an earlier start.")
    if changes and epoch > manifest.first_epoch:
        for change in changes:
            _check(change, log.history, epoch)
        now = {name: one.slots for name, one in operators.items()}
        slots: dict[str, SlotCommit] = {}
        for change in changes:
            slots |= _moved(change, log, cluster, query_id, epoch)
        run = _RUN + json.dumps(now, sort_keys=True)
        log.append(CommitRecord(epoch=epoch_before(epoch), run=run, slots=slots, amends=True))
        for change in changes:
            plan.reports.add(
                "rescaled",
                "another number of slots was asked for",
                epoch,
                operator=change.operator.name,
                before=change.before,
                after=change.operator.slots,
            )
    now = {name: one.slots for name, one in operators.items()}
    if told != now:
        fingerprint = {**manifest.fingerprint, "slots": now}
        store.write_manifest(msgspec.structs.replace(manifest, fingerprint=fingerprint))


def _rescaled_to(history: CommitHistory) -> dict[str, int]:
    """What the newest record of this kind says of numbers of slots, if there is one."""
    run = next((run for run in history.runs() if run.startswith(_RUN)), "")
    return dict(json.loads(run.removeprefix(_RUN))) if run else {}


def _check(change: _Change, history: CommitHistory, epoch: Epoch) -> None:
    one = change.operator
    recovery = one.policy.recovery
    if recovery.rewinds or recovery.logs_rows:
        raise _refusal(change, f"the policy {one.policy.name} keeps snapshots or rows by slot.")
    if not one.keyed:
        raise _refusal(change, "it has no key, so any slot may hold any part of the state.")
    if one.feedback_to is not None or one.feedback_arrow is not None:
        raise _refusal(change, "it sends feedback, which waits by slot.")
    if one.window is not None and one.window.by == "items":
        raise _refusal(change, "its window counts the rows of a slot.")
    for name, spec in one.state_specs.items():
        if spec["kind"] not in _DIVISIBLE:
            raise _refusal(
                change,
                f"its state {name!r} is a {spec['kind']}, of which nobody can say which part belongs "
                "to which key.",
            )
    for slot in each_slot(change.before):
        if history.slot_facts(one.name, slot, epoch).exact_epoch != epoch - 1:
            raise _refusal(
                change,
                f"the backup of slot {slot} is not its whole state: the query was not stopped in "
                "good order.",
                do=f"Start it once with parallelism={change.before}, stop it with query.stop(), and "
                "then start it with the new number.",
            )


def _moved(
    change: _Change, log: OpenCommitLog, cluster: Cluster[Any], query_id: str, epoch: Epoch
) -> dict[str, SlotCommit]:
    """Write a whole frame of every new slot; give what the commit record says of them."""
    one, history = change.operator, log.history
    parts: list[dict[str, list[pa.RecordBatch]]] = [{} for _ in range(one.slots)]
    sequence = FrameNumber(0)
    for slot in each_slot(change.before):
        chain = recover_chain(log.store, history, one.name, slot, epoch)
        require_whole(chain, f"Slot {slot} of {one.name!r} cannot be split.")
        sequence = max([sequence, *(frame.header.sequence for frame in chain.frames)])
        state = SlotState.heap()
        pickle.loads(one.blob).setup(state)  # noqa: S301 - the query's own operator
        state.begin_restore()
        for frame in chain.frames:
            state.restore(frame.parts)
        state.finish_restore(epoch - 1)
        state.begin(epoch)
        for name, export in state.export_full().items():
            for batch in export.batches:
                _divide(change, cluster, batch, parts, slot=slot, name=name)
    accounts = _accounts(change, history)
    commits = {}
    for slot, content in zip(each_slot(one.slots), parts, strict=True):
        entries = sum(batch.num_rows for batches in content.values() for batch in batches)
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
            carried=math.inf,  # what was there before is the state of other keys
            entries=entries,
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
            # Terms that no policy has: the new ones are durable with the next epoch.
            under=_RUN.strip(),
            theta=0.0,
            losses=tuple(account),
            losses_in_all=len(account),
        )
    return commits


def _divide(
    change: _Change,
    cluster: Cluster[Any],
    batch: pa.RecordBatch,
    parts: list[dict[str, list[pa.RecordBatch]]],
    *,
    slot: Slot,
    name: str,
) -> None:
    """Give each row of a batch to its new slot; an empty batch to slots that get none."""
    one = change.operator
    missing = [key for key in one.key_types if key not in batch.schema.names]
    if missing:
        raise _refusal(change, f"the key of its state {name!r} lacks the columns {missing}.")
    keys = batch.select(list(one.key_types))
    for content in parts:
        content.setdefault(name, [batch.slice(0, 0)])
    if not batch.num_rows:
        return
    # What the keys say of the old slots must be true; else they do not say it of the new ones.
    if (cluster.slots_of(one.name, keys, change.before) != slot).any():
        raise _refusal(change, f"rows of its state {name!r} are not in the slots of their keys.")
    targets = cluster.slots_of(one.name, keys, one.slots)
    for target in np.unique(targets):
        rows = pa.array(np.flatnonzero(targets == target))
        parts[int(target)][name].append(batch.take(rows))


def _accounts(change: _Change, history: CommitHistory) -> list[list[LossRecord]]:
    """The losses of each new slot."""
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


def _refusal(change: _Change, why: str, do: str = "") -> ChangedProgramError:
    name, before, after = change.operator.name, change.before, change.operator.slots
    return ChangedProgramError(
        f"The state of {name!r} cannot go from {before} slots to {after}.",
        why=f"{why[0].upper()}{why[1:]}",
        do=do or f"Start it with parallelism={before}, or with an empty backup and checkpoint.",
    )
