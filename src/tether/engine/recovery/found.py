"""Where a lost slot's state comes from: one finder for each recovery strategy."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tether.backup.parts import read_part
from tether.backup.recovery import recover_chain, require_whole
from tether.core.accounts import loss_at_most
from tether.core.errors import BackupUnreadableError, TetherError
from tether.core.ids import GENESIS, NEVER, Epoch, Failures, Slot, epoch_before
from tether.core.losses import LossRecord
from tether.engine.recovery.lost import LostStateError
from tether.engine.slot.policy_codec import policy_state_of
from tether.policies import recovery as strategies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tether.backup.commits import SlotCommit
    from tether.backup.frames import Frame
    from tether.backup.history import CommitHistory
    from tether.backup.recorded import SlotFacts
    from tether.backup.recovery import RestoredChain
    from tether.engine.slot.program import Program


@dataclass(frozen=True, kw_only=True)
class Found:
    """The data that a lost slot continues from."""

    version: Epoch
    """The restored state counts as that of the end of this epoch."""
    policy_state: Any
    frames: Sequence[Frame] = ()
    backup_epoch: Epoch = NEVER
    """The epoch that the newest of the frames is of."""
    failures: Failures = Failures(0)
    losses: frozenset[str] = frozenset()
    """Earlier losses of the slot, by the lineages that were lost."""
    price: LossRecord | None = None
    """The cost of this loss; None where nothing was lost."""
    under: str = ""
    """The terms that it was saved under, where rows logged from here on need a whole backup under the
    current terms; otherwise empty."""
    stale: bool = False
    """Whether epochs are missing from it, which a twin reads again: until then the slot's output is
    tentative."""
    full_bytes: int = 0
    log_bytes: int = 0
    unreadable: Sequence[str] = ()
    extra_bound: float = 0.0
    looked_up: float = field(default_factory=time.perf_counter)
    """Time at which it was known what to read, by ``perf_counter``."""


def find(program: Program, slot: Slot, reason: str) -> Found:
    """Find what a lost slot continues from, by the policy's recovery strategy.

    Args:
        program: What all slots of the operator share.
        slot: Number of the slot.
        reason: Why its resident state cannot be used.

    Raises:
        LostStateError: Only a rewind of the whole query can restore it.
        BackupUnreadableError: What is needed cannot be read, and the policy is exact: it never guesses.
            Or it has a bound, which would be infinite, and nobody has accepted that.
        TetherError: The engine does not know the policy's strategy.
    """
    recovery = program.policy.recovery
    finder = _FINDERS.get(recovery)
    if finder is None:
        raise TetherError(
            f"The policy {program.policy.name} names the recovery {recovery.name!r}.",
            why="The engine does not know this strategy.",
            do="Name one of tether.policies.recovery.",
        )
    if program.control.start is None:
        return finder(program, slot, reason)
    return _exact_start(program, slot, reason, finder)


def _exact_start(
    program: Program, slot: Slot, reason: str, finder: Callable[[Program, Slot, str], Found]
) -> Found:
    """What a twin starts from: all that is durable after it is of a run that has lost something."""
    control, start = program.control, program.control.start
    if epoch_before(control.epoch) != start:
        raise LostStateError(
            f"Slot {slot} of {control.operator!r} has lost its state before epoch {control.epoch}.",
            why=reason or "The resident state is not the one that the twin continues with.",
            do=f"Nothing: another twin starts from the exact state of epoch {start}.",
        )
    found = finder(program, slot, reason)
    if found.price is not None:
        raise BackupUnreadableError(
            f"The exact state of epoch {start} cannot be restored in slot {slot} of "
            f"{control.operator!r}.",
            why="; ".join(found.unreadable) or "Not all of it is in the backup.",
            do="Nothing: the query goes on within its bound.",
        )
    return found


def _nothing(program: Program, slot: Slot, reason: str) -> Found:
    """Without backups a lost slot starts again from the initial state, and reports that."""
    del reason
    control = program.control
    price = LossRecord(
        lost=control.expects(slot) or GENESIS,
        epoch=control.epoch,
        at_most=math.inf,
        theta=math.inf,
        failures=Failures(0),
        under=program.terms,
    )
    return Found(
        version=epoch_before(control.epoch), policy_state=program.policy.initial(), price=price
    )


@dataclass(frozen=True)
class _Account:
    """The entries of the commit log for a slot that runs the control's epoch next."""

    history: CommitHistory
    facts: SlotFacts
    commits: Sequence[SlotCommit]
    losses: frozenset[str]
    looked_up: float

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the full frame, and of the partial frames since."""
        lengths = [(one.frame.length if one.frame else 0, one.kind) for one in self.commits]
        full = sum(length for length, kind in lengths if kind == "full")
        return full, sum(length for length, _ in lengths) - full


def _account(program: Program, slot: Slot) -> _Account:
    control, history = program.control, program.history()
    return _Account(
        history=history,
        facts=history.slot_facts(control.operator, slot, control.epoch),
        commits=history.chain(control.operator, slot, control.epoch),
        losses=frozenset(loss.lost for loss in history.losses(control.operator, slot)),
        looked_up=time.perf_counter(),
    )


def _chain(program: Program, slot: Slot, account: _Account) -> RestoredChain:
    control = program.control
    return recover_chain(
        program.open_store(), account.history, control.operator, slot, control.epoch
    )


def _newest_backup(program: Program, slot: Slot, reason: str) -> Found:
    """The newest readable backup. What it lacks is a loss, unless nothing has changed since."""
    del reason
    control, account = program.control, _account(program, slot)
    facts, chain = account.facts, _chain(program, slot, account)
    if program.policy.recovery.exact:
        require_whole(chain, f"Slot {slot} of {control.operator!r} cannot be restored exactly.")
    elif math.isinf(chain.extra_bound) and not control.accept_damage:
        require_whole(
            chain,
            f"Slot {slot} of {control.operator!r} cannot be restored with a bound.",
            or_else="Or start with accept_damage=True: the bound is then infinite.",
        )
    policy_state = policy_state_of(
        program, facts.policy_state, facts.under, Failures(len(account.losses))
    )
    price = None
    if chain.unreadable or not _is_whole(program, facts):
        price = LossRecord(
            lost=facts.lineage or GENESIS,
            epoch=control.epoch,
            at_most=_at_risk(program, slot, facts),
            theta=facts.theta,
            failures=policy_state.failures,
            under=facts.under,
            extra=chain.extra_bound,
        )
    full_bytes, log_bytes = account.sizes
    return Found(
        version=epoch_before(control.epoch),
        policy_state=policy_state,
        frames=chain.frames,
        backup_epoch=max((frame.header.epoch for frame in chain.frames), default=NEVER),
        failures=facts.failures,
        losses=account.losses,
        price=price,
        full_bytes=full_bytes,
        log_bytes=log_bytes,
        unreadable=[f"{ref.name}: {reason}" for ref, reason in chain.unreadable],
        extra_bound=chain.extra_bound,
        looked_up=account.looked_up,
    )


def _is_whole(program: Program, facts: SlotFacts) -> bool:
    """Whether the committed frames are the state at the end of the epoch before: nothing was lost."""
    if facts.exact_epoch == program.control.epoch - 1:
        return True
    # Where every change is backed up in its own epoch, an older backup is current too, because nothing
    # has changed since. This does not hold for epochs that were run under other terms.
    every_change = program.policy.recovery.every_change and facts.under == program.terms
    return every_change and facts.exact_epoch is not None


def _at_risk(program: Program, slot: Slot, facts: SlotFacts) -> float:
    """The most that the lost state differed from its backup, according to durable records.

    The threshold of the current policy is not used, because the previous epoch may have been run under
    another one.
    """
    control = program.control
    at_the_end = facts.divergence if facts.epoch == control.epoch - 1 else None
    recorded = loss_at_most(facts.theta, at_the_end)
    return loss_at_most(recorded, control.divergences.get(slot))


def _backup_to_replay_onto(program: Program, slot: Slot, reason: str) -> Found:
    """The slot's own backup; the rows logged since are replayed onto it."""
    del reason
    control, account = program.control, _account(program, slot)
    facts, chain = account.facts, _chain(program, slot, account)
    cannot = f"Slot {slot} of {control.operator!r} cannot be restored exactly."
    require_whole(chain, cannot)
    base = account.commits[-1] if account.commits else None
    epoch, stored, under = epoch_before(control.first_epoch), b"", ""
    if facts.exact_epoch == control.epoch - 1:
        epoch, stored, under = epoch_before(control.epoch), facts.policy_state, facts.under
    else:
        # Rows were logged only under these terms. So they must reach back to a whole state: one that was
        # # written under the same terms, or the initial state.
        logged = facts.under == program.terms and (base is None or base.under == program.terms)
        if not logged or (base is not None and not base.exact):
            raise BackupUnreadableError(
                cannot,
                why="Epochs since its newest whole backup were run under a policy that is not exact, "
                "or that kept no rows.",
                do="Start again with an empty backup directory and Spark checkpoint, or go back to "
                "the policy that the backup was written with.",
            )
        if base is not None:
            epoch, stored, under = base.epoch, base.policy_state, base.under
    full_bytes, log_bytes = account.sizes
    return Found(
        version=epoch,
        policy_state=policy_state_of(program, stored, under, Failures(len(account.losses))),
        frames=chain.frames,
        under=under,
        backup_epoch=epoch,
        failures=facts.failures,
        losses=account.losses,
        full_bytes=full_bytes,
        log_bytes=log_bytes,
        looked_up=account.looked_up,
    )


def _part_of_snapshot(program: Program, slot: Slot, reason: str) -> Found:
    """The slot's part of the newest complete snapshot, if that is of the epoch before.

    If it is older, the slot cannot recover by itself, and reports that: the driver then rewinds the
    whole query.
    """
    control, account = program.control, _account(program, slot)
    facts, snapshot = account.facts, account.history.complete_snapshot(control.epoch)
    stale = slot in control.stale  # continues although epochs are missing, which a twin reads again
    if not stale and (snapshot is None or snapshot.epoch != control.epoch - 1):
        raise LostStateError(
            f"Slot {slot} of {control.operator!r} has lost its state before epoch {control.epoch}.",
            why=reason or "The resident state is not the one that the query continues with.",
            do="Nothing: the query goes back to its newest complete snapshot.",
        )
    if snapshot is None:  # stale, and there is no snapshot: continue from the initial state
        first = policy_state_of(program, b"", "", Failures(0))
        return Found(version=epoch_before(control.epoch), policy_state=first, stale=True)
    part = read_part(program.open_store(), account.history, control.operator, slot, snapshot)
    full_bytes, log_bytes = account.sizes
    losses = account.losses
    return Found(
        version=epoch_before(control.epoch),
        policy_state=policy_state_of(
            program, facts.policy_state, facts.under, Failures(len(losses))
        ),
        frames=part.frames,
        backup_epoch=snapshot.epoch,
        stale=snapshot.epoch != control.epoch - 1,
        failures=facts.failures,
        losses=losses,
        full_bytes=full_bytes,
        log_bytes=log_bytes,
        looked_up=account.looked_up,
    )


_FINDERS: dict[strategies.Recovery, Callable[[Program, Slot, str], Found]] = {
    strategies.EMPTY: _nothing,
    strategies.FROM_BACKUP: _newest_backup,
    strategies.LAST_EPOCH: _newest_backup,
    strategies.REPLAY: _backup_to_replay_onto,
    strategies.FROM_SNAPSHOT: _part_of_snapshot,
}
