"""Changing the number of slots: the stored state is split and merged by key, exactly.

A query whose whole state is in its backup, because it was stopped normally or has just made all of it
durable, can continue with another number of slots. What a crash right after each step means:

1. After a command, the manifest is updated with the planned change. (Crash: nothing has happened.)
2. A whole frame of every new slot is written. (Crash: no record names them, and they are removed later.)
3. One commit record names them all, and says how many slots there are now. (Crash: the record says
   it, and the manifest tells the next start to look for it.)
4. The manifest says it, too.

There are three ways to ask for it: another ``parallelism`` at a restart, if that is allowed; a command
while the query is stopped; a command while it runs. After a command the program still contains the old
number. So the manifest keeps both, and the command's number counts until the program's is changed
(:func:`numbers_there`).

Earlier losses stay in the account: those of a slot that no longer exists move to one that does. Where
not the sum but the worst entry counts, any slot may now have the entry that was affected, so every slot
gets all losses.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tether.backup.commits import CommitRecord, SlotCommit
from tether.chaos.faults import reach
from tether.core.errors import BackupError
from tether.core.ids import Epoch, SnapshotNumber, each_slot, epoch_before
from tether.engine.query.splitting import Change, divided, refusal, stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.backup.history import CommitHistory
    from tether.backup.manifest import Manifest
    from tether.backup.protocol import BackupStore
    from tether.chaos.faults import Fault
    from tether.engine.ports import Reports
    from tether.engine.query.commit_log import OpenCommitLog
    from tether.engine.query.lane import LanePlan
    from tether.engine.query.splitting import Homes, Stored

_RUN = "rescale "
"""Prefix of the run in a record of this kind; the new numbers of slots follow."""


class UnfinishedError(Exception):
    """The stored state may or may not have been divided; the next start will find out."""


class Rescaling:
    """Divides the stored state into the numbers of slots that operators have now.

    Args:
        operators: All operators of the store, by name, with their new numbers of slots.
        log: The store's commit log, open.
        homes: Knows the slot of a key.
        query_id: Id of the query.
        faults: Those that the query was started with.
    """

    def __init__(
        self,
        operators: Mapping[str, Stored],
        log: OpenCommitLog,
        homes: Homes,
        query_id: str,
        faults: Sequence[Fault] = (),
    ) -> None:
        self._operators, self._log, self._homes = operators, log, homes
        self._query_id, self._faults = query_id, tuple(faults)
        manifest = log.store.read_manifest()
        assert manifest is not None
        self._manifest = manifest

    @classmethod
    def of_lane(cls, plan: LanePlan, log: OpenCommitLog, homes: Homes, query_id: str) -> Rescaling:
        """For the store of a lane, whose log is open."""
        graph = plan.settings.graph
        operators = {name: stored(one, graph) for name, one in plan.operators.items()}
        return cls(operators, log, homes, query_id, plan.settings.faults)

    @property
    def first_epoch(self) -> Epoch:
        """The first epoch that ever ran on the store."""
        return self._manifest.first_epoch

    def changes(self) -> list[Change]:
        """Operators that have another number of slots than the stored state."""
        there = _there(self._manifest, self._log.history)
        return [
            Change(one, there[name])
            for name, one in self._operators.items()
            if there[name] != one.slots
        ]

    def check(self, changes: Sequence[Change], epoch: Epoch) -> None:
        """Refuse changes that are not possible; nothing is changed.

        Args:
            changes: The operators.
            epoch: The epoch that slots are to run next.

        Raises:
            ChangedProgramError: Says why.
        """
        for change in changes:
            if change.operator.refused:
                raise refusal(change, change.operator.refused)
            self._check_losses(change)
            self._check_whole(change, epoch)
        # The shares of other operators may change too, and so may their terms. What an exact policy has
        # # stored under the old terms can be continued only from a whole state.
        moved = {change.operator.name for change in changes}
        for name, one in self._operators.items():
            if changes and one.recovery.exact and name not in moved:
                self._check_whole(Change(one, one.slots), epoch)

    def _check_whole(self, change: Change, epoch: Epoch) -> None:
        one, history = change.operator, self._log.history
        for slot in each_slot(change.before):
            if history.slot_facts(one.name, slot, epoch).exact_epoch != epoch - 1:
                raise refusal(
                    change,
                    f"the backup of slot {slot} is not its whole state: the query was not stopped in "
                    "good order.",
                    do=f"Start it once with parallelism={change.before}, stop it with query.stop(), "
                    "and then change the number.",
                )

    def _check_losses(self, change: Change) -> None:
        """Refuse to merge slots that may all contain an error of an earlier operator."""
        one, history = change.operator, self._log.history
        if one.slots > change.before:
            return
        for name in one.senders:
            slots = self._operators[name].slots if name in self._operators else 0
            if not slots or any(history.losses(name, slot) for slot in each_slot(slots)):
                raise refusal(
                    change,
                    f"{name!r}, from which it gets rows, has lost state before. That may show in each "
                    "of its slots, and in fewer of them it could not be told apart.",
                    do="Give it more slots than before, or leave the number.",
                )

    def move(self, changes: Sequence[Change], epoch: Epoch, *, by_command: bool = False) -> None:
        """Divide the stored state again if necessary, and record the numbers of slots in the manifest.

        Args:
            changes: What :meth:`changes` gave, and :meth:`check` let pass.
            epoch: The epoch that slots are to run next.
            by_command: Whether the numbers come from a command. The next start must know them, because
                the program does not contain them.

        Raises:
            ChangedProgramError: Entries are not in the slots of their keys; nothing was changed.
            BackupError: The store failed; nothing was changed.
            UnfinishedError: It failed when the commit record was written, or later.
        """
        if not changes:
            self._settle()
            return
        if by_command:
            moving = {change.operator.name: change.operator.slots for change in changes}
            self._write(moving=moving)
        try:
            reach(self._faults, "rescale-announced", -1, epoch)
            slots: dict[str, SlotCommit] = {}
            for change in changes:
                slots |= divided(change, self._log, self._homes, self._query_id, epoch)
            reach(self._faults, "rescale-written", -1, epoch)
        except Exception:
            with suppress(BackupError):
                # Where this fails the plan stays, and the next start finds nothing in the log.
                self._write(moving={})
            raise
        try:
            self._log.append(self._record(slots, epoch))
            reach(self._faults, "rescale-recorded", -1, epoch)
            self._settle()
            reach(self._faults, "rescale-settled", -1, epoch)
        except Exception as error:
            raise UnfinishedError from error

    def _record(self, slots: dict[str, SlotCommit], epoch: Epoch) -> CommitRecord:
        now = {name: one.slots for name, one in self._operators.items()}
        run, before = _RUN + json.dumps(now, sort_keys=True), epoch_before(epoch)
        if not any(one.recovery.rewinds for one in self._operators.values()):
            return CommitRecord(epoch=before, run=run, slots=slots, amends=True)
        # The record is a snapshot too, so that a query never goes back to a state from before it.
        snapshot = self._log.history.complete_snapshot(epoch)
        assert snapshot is not None
        assert snapshot.epoch == before
        number = SnapshotNumber(snapshot.number + 1)
        return CommitRecord(
            epoch=before, run=run, slots=slots, complete=number, items=dict(snapshot.items)
        )

    def _settle(self) -> None:
        told = {name: one.in_program for name, one in self._operators.items()}
        moved = {n: one.slots for n, one in self._operators.items() if one.slots != told[n]}
        fingerprint = {**self._manifest.fingerprint, "slots": told}
        operators = {name: one.told for name, one in self._operators.items()}
        self._write(fingerprint=fingerprint, operators=operators, moved=moved, moving={})

    def _write(self, **changed: object) -> None:
        wanted = msgspec.structs.replace(self._manifest, **changed)
        if wanted != self._manifest:
            self._log.store.write_manifest(wanted)
            self._manifest = wanted


def settle_slots(
    plan: LanePlan, log: OpenCommitLog, homes: Homes, query_id: str, epoch: Epoch
) -> None:
    """Bring the stored state to the program's numbers of slots, if they differ.

    Args:
        plan: The lane; its store has a manifest.
        log: The store's commit log, open.
        homes: Knows the slot of a key.
        query_id: Id of the query.
        epoch: The epoch that slots are to run next.

    Raises:
        ChangedProgramError: They differ, and a change is not allowed, or not possible with this state.
    """
    rescaling = Rescaling.of_lane(plan, log, homes, query_id)
    changes = rescaling.changes()
    if changes and "slots" not in plan.settings.allow_changed:
        raise refusal(changes[0], "its state was moved to that many slots by an earlier start.")
    if epoch <= rescaling.first_epoch:
        changes = []  # there is no stored state
    rescaling.check(changes, epoch)
    try:
        rescaling.move(changes, epoch)
    except UnfinishedError as error:
        raise (error.__cause__ or error) from None
    report_rescaled(plan.reports, changes, "another number of slots was asked for", epoch)


def report_rescaled(reports: Reports, changes: Sequence[Change], cause: str, epoch: Epoch) -> None:
    """Report the change in the story."""
    for change in changes:
        one = change.operator
        reports.add(
            "rescaled", cause, epoch, operator=one.name, before=change.before, after=one.slots
        )


def numbers_there(store: BackupStore, program: Mapping[str, int]) -> dict[str, int]:
    """The numbers of slots of a query, after commands that its program does not know of.

    Args:
        store: The query's store.
        program: The program's numbers, by operator.

    Returns:
        Those that differ from the program's.
    """
    manifest = store.read_manifest()
    if manifest is None or not (manifest.moved or manifest.moving):
        return {}
    stored = dict(manifest.fingerprint.get("slots", {}))
    # A driver has died in the middle of a change: the log shows how far it came.
    there = _there(manifest, store.read_commits().history) if manifest.moving else manifest.moved
    return {
        name: there[name]
        for name, slots in program.items()
        # A number that was changed in the program is newer than the command.
        if name in there and slots == stored.get(name) and there[name] != slots
    }


def _there(manifest: Manifest, history: CommitHistory) -> dict[str, int]:
    """The numbers of slots that the stored state is in."""
    told = {**manifest.fingerprint.get("slots", {}), **manifest.moved}
    return {**told, **_rescaled_to(history)}


def _rescaled_to(history: CommitHistory) -> dict[str, int]:
    """The numbers of slots in the newest record of this kind, if there is one."""
    run = next((run for run in history.runs() if run.startswith(_RUN)), "")
    return dict(json.loads(run.removeprefix(_RUN))) if run else {}
