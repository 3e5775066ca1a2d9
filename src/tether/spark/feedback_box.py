"""Where feedback items wait at the driver between the epoch that sent them and the one that uses them.

They are backed up by policy, like items (AF-Stream 2019 §3.4.2): an exact policy makes every one
durable with the commit of its epoch; an approximate one only when more than l of them are not. So a
driver that dies loses at most l feedback items.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.backup.commits import SlotCommit
from tether.backup.names import slot_key
from tether.backup.recovery import recover_chain
from tether.core.approximate import Approximate
from tether.spark.driver_items import ITEMS, items_header
from tether.spark.feedback import merge_items, pack_items, unpack_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from tether.backup.history import CommitHistory, CompleteSnapshot
    from tether.backup.protocol import BackupStore
    from tether.spark.control import SlotStatus
    from tether.spark.prepared import PreparedOperator
    from tether.spark.statuses import SlotId


class Sent(NamedTuple):
    """Feedback items of one epoch."""

    epoch: int
    items: bytes


class FeedbackBox:
    """Feedback by receiving operator; used by the threads of all parts of a query."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Sent]] = {}
        self._finished: dict[str, int] = {}
        self._unsaved: dict[str, int] = {}

    def waiting(self, receiver: str) -> Sent | None:
        """All items that the receiver has not had, as of the newest epoch that the sender finished."""
        with self._lock:
            finished = self._finished.get(receiver)
            if finished is None:
                return None
            items = merge_items(sent.items for sent in self._waiting.get(receiver, []))
            return Sent(finished, items)

    def deliver(
        self, operators: Iterable[PreparedOperator], statuses: Mapping[SlotId, SlotStatus]
    ) -> None:
        """An epoch is committed: what it was given is used up, what it sent waits."""
        for operator in operators:
            own = {slot: s for (name, slot), s in statuses.items() if name == operator.name}
            self._use_up(operator.name, own)
            if operator.node.feedback_to is not None:
                receiver = operator.node.feedback_to.name
                epoch = max(status.epoch for status in own.values())
                items = merge_items(own[slot].feedback for slot in sorted(own))
                self._put(receiver, Sent(epoch, items))

    def _use_up(self, receiver: str, statuses: Mapping[int, SlotStatus]) -> None:
        given = max((status.feedback_epoch for status in statuses.values()), default=-1)
        with self._lock:
            left = [sent for sent in self._waiting.get(receiver, []) if sent.epoch > given]
            if receiver in self._waiting:
                self._waiting[receiver] = left

    def _put(self, receiver: str, sent: Sent) -> None:
        with self._lock:
            self._finished[receiver] = sent.epoch
            if sent.items:
                self._waiting.setdefault(receiver, []).append(sent)

    # ---- durability ----------------------------------------------------------------------------

    def save(
        self,
        store: BackupStore | None,
        operators: Iterable[PreparedOperator],
        statuses: Mapping[SlotId, SlotStatus],
        *,
        epoch: int,
        query_id: str,
        run_id: str,
    ) -> dict[str, SlotCommit]:
        """Make an epoch's feedback durable where the policy asks for it; entries for its commit."""
        entries = {}
        for operator in operators:
            if operator.node.feedback_to is None:
                continue
            own = [statuses[key] for key in sorted(statuses) if key[0] == operator.name]
            items = merge_items(status.feedback for status in own)
            if store is None or not items or not operator.policy.keeps_backups:
                continue
            count = sum(batch.num_rows for batch in unpack_items(items))
            unsaved = self._unsaved.get(operator.name, 0) + count
            if unsaved <= _most_lost(operator):
                self._unsaved[operator.name] = unsaved
                continue
            self._unsaved[operator.name] = 0
            name = box_name(operator)
            header = items_header(
                name, query=query_id, run=run_id, epoch=epoch, sequence=epoch, entries=count
            )
            # Each one holds all that is still to be delivered: an image, not a log.
            header = msgspec.structs.replace(header, kind="full")
            ref = store.append(header, {ITEMS: list(unpack_items(items))})
            entries[slot_key(name, 0)] = SlotCommit(
                epoch=epoch, frame=ref, kind="full", divergence_after=0.0
            )
        return entries

    def resume(
        self,
        store: BackupStore,
        history: CommitHistory,
        operators: Iterable[PreparedOperator],
        committed: int,
        *,
        again: bool,
    ) -> None:
        """Take over the newest feedback that an earlier run of the query made durable.

        Args:
            store: Of the sending part.
            history: Its commits.
            operators: Its operators.
            committed: Its last committed epoch.
            again: Also take feedback of earlier epochs, which may have been used before. Where the
                two ends of a loop keep no common pace, nobody knows; the newest is given again.
        """
        with self._lock:
            for operator in operators:
                if operator.node.feedback_to is not None:
                    self._waiting.pop(operator.node.feedback_to.name, None)
                    self._finished.pop(operator.node.feedback_to.name, None)
        for operator in operators:
            if operator.node.feedback_to is None:
                continue
            chain = recover_chain(store, history, box_name(operator), 0, committed + 1)
            for frame in chain.frames[-1:]:
                if frame.header.epoch < committed and not again:
                    continue
                items = pack_items(frame.parts[ITEMS])
                self._put(operator.node.feedback_to.name, Sent(frame.header.epoch, items))

    def put_back(
        self, store: BackupStore, snapshot: CompleteSnapshot, operators: Iterable[PreparedOperator]
    ) -> None:
        """What was in flight when a snapshot was taken is in flight again, and nothing else."""
        with self._lock:
            self._waiting.clear()
            self._finished.clear()
        for operator in operators:
            if operator.node.feedback_to is None:
                continue
            receiver = operator.node.feedback_to.name
            batches = items_of(store, snapshot, receiver)
            self._put(receiver, Sent(snapshot.epoch, pack_items(batches)))


def items_of(store: BackupStore, snapshot: CompleteSnapshot, name: str) -> list[pa.RecordBatch]:
    """What a snapshot holds beside states under a name; nothing where it holds nothing."""
    ref = snapshot.items.get(slot_key(name, 0))
    return [] if ref is None else store.read(ref).parts["items"]


def box_name(operator: PreparedOperator) -> str:
    """Under which name the operator's feedback is stored."""
    return f"{operator.name}.feedback"


def _most_lost(operator: PreparedOperator) -> float:
    policy = operator.policy
    if not isinstance(policy, Approximate):
        return 0.0
    return policy.thresholds(policy.initial(), operator.placement).l
