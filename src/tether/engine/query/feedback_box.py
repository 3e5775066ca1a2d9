"""Feedback items that wait at the driver, from the epoch that sent them to the one that uses them.

They are backed up by policy, like items (AF-Stream 2019 §3.4.2): an exact policy makes every one
durable with the commit of its epoch; an approximate one only when more than l of the waiting items are
not durable. So a driver that dies loses at most l of them. The number is not known afterwards: the next
driver counts l items as lost, and continues with half of l. So they are at most L in all (§3.5.2).

As for state, l counts only once it is durable: the commit log says how many items may wait unsaved.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tether.backup.commits import SlotCommit
from tether.backup.names import slot_key
from tether.backup.recovery import recover_chain, require_whole
from tether.core.ids import DRIVERS, NEVER, Epoch, Failures, FrameNumber, Slot, epoch_after
from tether.core.losses import LossRecord
from tether.engine.writing.driver_items import items_header
from tether.engine.writing.items import merge_items, pack_items, unpack_items
from tether.policies.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from tether.backup.frames import Frame, FrameRef
    from tether.backup.history import CommitHistory
    from tether.backup.protocol import BackupStore
    from tether.backup.recorded import CompleteSnapshot
    from tether.core.graph import SlotId
    from tether.engine.messages import SlotStatus
    from tether.engine.operators import QueryOperator


class Waiting(NamedTuple):
    """All that waits for a receiver, as of the newest epoch that its sender has finished."""

    epoch: Epoch
    items: bytes


class Sent(NamedTuple):
    """Feedback items that an operator sent in one epoch."""

    sender: str
    epoch: Epoch
    items: bytes

    @property
    def rows(self) -> int:
        """How many they are."""
        return sum(batch.num_rows for batch in unpack_items(self.items))


@dataclass
class _Sender:
    """What is durable of one operator's feedback, and what was lost of it."""

    saved: Epoch = NEVER
    """Waiting items that were sent up to this epoch are durable."""
    unsaved: int = 0
    recorded: float = 0.0
    """How many items may wait unsaved, by the commit log."""
    losses: dict[str, LossRecord] = field(default_factory=dict)
    found: LossRecord | None = None
    """A loss that is not in the commit log yet."""

    def lose(self, items: float, epoch: Epoch, under: str) -> LossRecord:
        """Count items as lost that an epoch would have used."""
        self.found = LossRecord(
            lost=f"feedback for epoch {epoch}",
            epoch=epoch,
            at_most=0.0,
            theta=0.0,
            failures=Failures(len(self.losses)),
            under=under,
            kind="feedback",
            items=items,
        )
        self.losses[self.found.lost] = self.found
        return self.found


class FeedbackBox:
    """Feedback by receiving operator; used by the threads of all lanes of a query.

    Args:
        apart: Whether receivers and senders run at different epochs, with separate logs.
    """

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self._lock = threading.RLock()
        self._waiting: dict[str, list[Sent]] = {}
        self._finished: dict[str, Epoch] = {}
        self._used: dict[str, Epoch] = {}
        """For receivers with a log: the epoch of the newest feedback that the log says was used."""
        self._senders: dict[str, _Sender] = {}

    def waiting(self, receiver: str) -> Waiting | None:
        """All items that the receiver has not used, as of the newest epoch that the sender finished."""
        with self._lock:
            finished = self._finished.get(receiver)
            if finished is None:
                return None
            return Waiting(
                finished, merge_items(sent.items for sent in self._waiting.get(receiver, []))
            )

    def deliver(
        self, operators: Iterable[QueryOperator], statuses: Mapping[SlotId, SlotStatus]
    ) -> None:
        """An epoch is committed: the items that it was given are used up, those that it sent wait."""
        with self._lock:
            for operator in operators:
                own = _own(operator, statuses)
                given = _given(own)
                left = [s for s in self._waiting.get(operator.name, []) if s.epoch > given]
                self._waiting[operator.name] = left
                if operator.feedback_to is not None:
                    self._put(operator.feedback_to, _sent(operator, own))

    def _put(self, receiver: str, sent: Sent) -> None:
        self._finished[receiver] = max(sent.epoch, self._finished.get(receiver, NEVER))
        if sent.items:
            self._waiting.setdefault(receiver, []).append(sent)

    def told(self, sender: str) -> tuple[list[LossRecord], int]:
        """Losses of an operator's feedback, and the number of items that would be lost now."""
        with self._lock:
            known = self._senders.get(sender, _Sender())
            return list(known.losses.values()), known.unsaved

    # ---- durability ----------------------------------------------------------------------------

    def save(
        self,
        store: BackupStore | None,
        operators: Iterable[QueryOperator],
        statuses: Mapping[SlotId, SlotStatus],
        *,
        epoch: Epoch,
        query_id: str,
        run_id: str,
        flush: bool = False,
    ) -> dict[str, SlotCommit]:
        """Before a commit, make durable what the policy asks for; return entries for the record.

        Args:
            store: The lane's.
            operators: The lane's.
            statuses: Their reports of the epoch.
            epoch: Its number.
            query_id: Id of the query.
            run_id: Id of this driver's run.
            flush: Save all that waits, as of the end of the epoch: the query is being stopped.
        """
        entries: dict[str, SlotCommit] = {}
        with self._lock:
            for operator in operators:
                if self._apart and store is not None:
                    entries |= self._receipt(operator, _given(_own(operator, statuses)), epoch)
                if operator.feedback_to is None:
                    continue
                sender = self._senders.setdefault(operator.name, _Sender())
                waits = self._will_wait(operator, operator.feedback_to, statuses)
                sender.unsaved = sum(sent.rows for sent in waits if sent.epoch > sender.saved)
                most, frame = _most_lost(operator, Failures(len(sender.losses))), None
                if store is None:
                    continue
                if operator.policy.keeps_backups and sender.unsaved > (0 if flush else most):
                    frame = _write(store, operator, waits, epoch, query_id=query_id, run_id=run_id)
                    sender.saved, sender.unsaved = epoch, 0
                at_risk = 0.0 if flush or sender.found is not None else sender.recorded
                if sender.unsaved:
                    at_risk = max(at_risk, most)
                if frame or sender.found or at_risk != sender.recorded:
                    entries[slot_key(box_name(operator), DRIVERS)] = SlotCommit(
                        epoch=epoch,
                        frame=frame,
                        kind="full" if frame else None,
                        divergence_after=0.0,
                        theta=0.0,
                        under=terms_of(operator.policy, operator.placement),
                        items_at_risk=at_risk,
                        losses=(sender.found,) if sender.found else (),
                        losses_in_all=len(sender.losses),
                    )
                    sender.recorded, sender.found = at_risk, None
        return entries

    def _will_wait(
        self, operator: QueryOperator, receiver: str, statuses: Mapping[SlotId, SlotStatus]
    ) -> list[Sent]:
        """The feedback of an operator that waits once the epoch of these reports is committed."""
        used = _given({slot: s for (name, slot), s in statuses.items() if name == receiver})
        waits = [
            sent
            for sent in self._waiting.get(receiver, [])
            if sent.sender == operator.name and sent.epoch > used
        ]
        new = _sent(operator, _own(operator, statuses))
        return [*waits, new] if new.items else waits

    def _receipt(
        self, operator: QueryOperator, given: Epoch, epoch: Epoch
    ) -> dict[str, SlotCommit]:
        """The receiver's own entry of what it has used, where the sender's log may give it again."""
        durable = any(
            sent.epoch <= min(given, self._senders[sent.sender].saved)
            for sent in self._waiting.get(operator.name, [])
            if sent.sender in self._senders
        )
        if not durable:
            return {}
        packed = msgspec.msgpack.encode(given)
        commit = SlotCommit(epoch=epoch, divergence_after=0.0, theta=0.0, policy_state=packed)
        return {slot_key(receipt_name(operator), DRIVERS): commit}

    def resume(
        self,
        store: BackupStore,
        history: CommitHistory,
        operators: Iterable[QueryOperator],
        committed: Epoch,
    ) -> list[LossRecord]:
        """Load the waiting items that an earlier run of the query left; return the losses.

        Args:
            store: The lane's.
            history: Its commits.
            operators: Its operators.
            committed: Its last committed epoch. Where the query has two lanes, the receivers' lane
                is resumed first.
        """
        with self._lock:
            for operator in operators:
                packed = history.slot_facts(
                    receipt_name(operator), DRIVERS, epoch_after(committed)
                ).policy_state
                self._used[operator.name] = (
                    msgspec.msgpack.decode(packed, type=Epoch) if packed else NEVER
                )
            senders = [(one, one.feedback_to) for one in operators if one.feedback_to is not None]
            for _, receiver in senders:
                self._waiting.pop(receiver, None)
                self._finished.pop(receiver, None)
            found = [
                self._resume_sender(store, history, operator, receiver, committed)
                for operator, receiver in senders
            ]
        return [loss for loss in found if loss is not None]

    def _resume_sender(
        self,
        store: BackupStore,
        history: CommitHistory,
        operator: QueryOperator,
        receiver: str,
        committed: Epoch,
    ) -> LossRecord | None:
        name = box_name(operator)
        facts = history.slot_facts(name, DRIVERS, epoch_after(committed))
        chain = recover_chain(store, history, name, DRIVERS, epoch_after(committed))
        if operator.policy.recovery.exact:
            require_whole(chain, f"Feedback of {operator.name!r} cannot be restored exactly.")
        image = chain.frames[-1] if chain.frames else None
        # Where both run at one pace, the last committed epoch has used all items that were sent before
        # it.
        used = self._used.get(receiver, NEVER) if self._apart else committed - 1
        for sent in _in(image, operator):
            if sent.epoch > used:
                self._put(receiver, sent)
        saved = image.header.epoch if image else NEVER
        sender = _account(history, operator)
        sender.saved, sender.recorded = saved, facts.items_at_risk
        self._senders[operator.name] = sender
        at_risk = math.inf if chain.unreadable else facts.items_at_risk
        if at_risk and (chain.unreadable or saved < committed):
            sender.lose(at_risk, epoch_after(committed), facts.under)
        return sender.found

    def resume_without_account(
        self, operators: Iterable[QueryOperator], epoch: Epoch
    ) -> list[LossRecord]:
        """Continue after an earlier run that recorded nothing: all waiting items are lost."""
        found = []
        with self._lock:
            for operator in operators:
                if operator.feedback_to is not None:
                    sender = self._senders[operator.name] = _Sender()
                    terms = terms_of(operator.policy, operator.placement)
                    found.append(sender.lose(math.inf, epoch, terms))
        return found

    def put_back(
        self,
        store: BackupStore,
        history: CommitHistory,
        snapshot: CompleteSnapshot,
        operators: Iterable[QueryOperator],
    ) -> None:
        """Put back exactly the items that were in flight when a snapshot was taken."""
        with self._lock:
            self._waiting.clear()
            self._finished.clear()
            for operator in operators:
                if operator.feedback_to is None:
                    continue
                self._senders[operator.name] = _account(history, operator)
                self._senders[operator.name].saved = snapshot.epoch
                receiver = operator.feedback_to
                items = pack_items(items_of(store, snapshot, receiver))
                self._put(receiver, Sent(operator.name, snapshot.epoch, items))


def _own(operator: QueryOperator, statuses: Mapping[SlotId, SlotStatus]) -> dict[Slot, SlotStatus]:
    return {slot: s for (name, slot), s in statuses.items() if name == operator.name}


def _given(statuses: Mapping[Slot, SlotStatus]) -> Epoch:
    """Epoch of the feedback that an operator's slots were given."""
    return max((status.feedback_epoch for status in statuses.values()), default=NEVER)


def _sent(operator: QueryOperator, statuses: Mapping[Slot, SlotStatus]) -> Sent:
    epoch = max((status.epoch for status in statuses.values()), default=NEVER)
    items = merge_items(statuses[slot].feedback for slot in sorted(statuses))
    return Sent(operator.name, epoch, items)


def _account(history: CommitHistory, operator: QueryOperator) -> _Sender:
    losses = {loss.lost: loss for loss in history.losses(box_name(operator), DRIVERS)}
    return _Sender(losses=losses)


def _write(
    store: BackupStore,
    operator: QueryOperator,
    waits: Iterable[Sent],
    epoch: Epoch,
    *,
    query_id: str,
    run_id: str,
) -> FrameRef:
    """Store all waiting items, by the epoch that sent them; the image before is not needed any more."""
    parts = {str(sent.epoch): list(unpack_items(sent.items)) for sent in waits}
    rows = sum(batch.num_rows for batches in parts.values() for batch in batches)
    header = items_header(
        box_name(operator),
        query=query_id,
        run=run_id,
        epoch=epoch,
        sequence=FrameNumber(epoch),
        entries=rows,
    )
    return store.append(msgspec.structs.replace(header, kind="full"), parts)


def _in(image: Frame | None, operator: QueryOperator) -> list[Sent]:
    if image is None:
        return []
    by_epoch = {Epoch(int(name)): batches for name, batches in image.parts.items()}
    return [Sent(operator.name, at, pack_items(by_epoch[at])) for at in sorted(by_epoch)]


def items_of(store: BackupStore, snapshot: CompleteSnapshot, name: str) -> list[pa.RecordBatch]:
    """What a snapshot holds beside states under a name; nothing where it holds nothing."""
    ref = snapshot.items.get(slot_key(name, DRIVERS))
    return [] if ref is None else store.read(ref).parts["items"]


def box_name(operator: QueryOperator) -> str:
    """The name under which the operator's feedback is stored."""
    return f"{operator.name}.feedback"


def receipt_name(operator: QueryOperator) -> str:
    """The name under which it is stored which feedback the operator has used."""
    return f"{operator.name}.fed"


def _most_lost(operator: QueryOperator, failures: Failures) -> float:
    """Number of items that may wait unsaved: l after this many deaths of drivers."""
    return operator.policy.most_lost_items(failures, operator.placement)
