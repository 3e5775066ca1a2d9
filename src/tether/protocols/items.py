"""Receiver-side item backup (AF-Stream 2019 §3.4.2–3.4.3): at most l items are at risk.

The receiver numbers items as they come, from 1. It acknowledges on receipt, not after processing,
so a sender's memory stays small; in return it must not lose many. It counts the items that are
neither processed nor backed up, and when they are more than l it backs all of them up. Punctuation
is always backed up. A state that is backed up says the number of the newest item in it, so that
after a loss only items above that number are processed again.

**Where this is not the paper.** The paper replays the newest unbroken run of backed-up items. Some
of these may have been processed, and after them others that were not backed up. If updates can
cancel out, that gives a state that never was: with θ = 10, a backup of state 0, a backed-up -10
that brings it to -10 and then +20 without a backup, the state is 10 and recovers to -10, off by
2θ; a hole before the run can add another θ. So the receiver keeps this true: *whatever can be
replayed is newer than all that was processed without a backup.* Before an item without a backup is
processed, the backups of those before it, all processed by then, are dropped for good. Then the
recovered state lacks just what the live one had gained over its backup at some moment, at most θ,
and the items at risk, at most l.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable


class ReceiverState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a receiver of items.

    To be stored with every backup that a step asks for, and with every backup of the state.

    Example:
        >>> ReceiverState(received=9, processed=4, backed_up=6).at_risk
        3
    """

    received: int = 0
    """Number of the newest item; items are numbered from 1."""
    processed: int = 0
    """Number of the newest item that is in the live state."""
    backed_up: int = 0
    """Number of the newest item covered by a backup of all pending ones."""
    punctuation: tuple[int, ...] = ()
    """Numbers above that of punctuation items which have a backup of their own."""
    dropped: int = 0
    """Backups of items up to this number are never replayed."""
    heard: tuple[tuple[str, int], ...] = ()
    """For each sender, the newest of its own numbers, so that items that arrive again are not processed
    twice."""

    @property
    def at_risk(self) -> int:
        """Items that a loss of the receiver now would lose: neither processed nor backed up."""
        safe = max(self.processed, self.backed_up)
        pending = self.received - safe
        return (
            pending - sum(mark > safe for mark in self.punctuation) if self.punctuation else pending
        )


class ItemsArrived(msgspec.Struct, frozen=True, kw_only=True, tag="items-arrived"):
    """Data or feedback items came from a sender, under its own numbers."""

    sender: str
    first: int
    count: int


class PunctuationArrived(msgspec.Struct, frozen=True, kw_only=True, tag="punctuation-arrived"):
    """A punctuation item came: the end of a window or of the stream."""

    sender: str
    first: int


class ReadyToProcess(msgspec.Struct, frozen=True, kw_only=True, tag="ready-to-process"):
    """The live state is to take in items up to this number."""

    upto: int


class StateSaved(msgspec.Struct, frozen=True, kw_only=True, tag="state-saved"):
    """The live state was backed up, with the number of its newest item."""


class ItemsSaved(msgspec.Struct, frozen=True, kw_only=True, tag="items-saved"):
    """All pending items up to this number were backed up, before anybody had to wait for it."""

    upto: int


ReceiverEvent = ItemsArrived | PunctuationArrived | ReadyToProcess | StateSaved | ItemsSaved


class TakeItems(msgspec.Struct, frozen=True, kw_only=True, tag="take-items"):
    """Leave out the first ``skip`` of what came (known already); number the rest from ``first``."""

    skip: int
    first: int
    last: int


class BackUpItems(msgspec.Struct, frozen=True, kw_only=True, tag="back-up-items"):
    """Make these items durable, both ends included."""

    first: int
    last: int


class BackUpPunctuation(msgspec.Struct, frozen=True, kw_only=True, tag="back-up-punctuation"):
    """Make this punctuation item durable."""

    number: int


class Acknowledge(msgspec.Struct, frozen=True, kw_only=True, tag="acknowledge"):
    """Tell the sender that everything up to this number of its own has arrived."""

    sender: str
    upto: int


class ProcessItems(msgspec.Struct, frozen=True, kw_only=True, tag="process-items"):
    """Process these, both ends included, leaving out numbers that an earlier loss took."""

    first: int
    last: int


class DropItems(msgspec.Struct, frozen=True, kw_only=True, tag="drop-items"):
    """Never replay items up to this number. To be durable before the next instruction."""

    upto: int


ReceiverInstruction = (
    TakeItems | BackUpItems | BackUpPunctuation | Acknowledge | ProcessItems | DropItems
)
_Step = tuple[ReceiverState, tuple[ReceiverInstruction, ...]]


def receive(
    state: ReceiverState,
    event: ReceiverEvent,
    l: float,  # noqa: E741 - the paper's letter
) -> _Step:
    """Take one event in; give the new state and what must be done, each before the next.

    Guarantee: at most ``l`` of the items that a sender may have let go are at risk, at any moment:
    backups come before the acknowledgement. If the state is backed up whenever its divergence is
    above θ, checked after each ``ProcessItems``, a loss costs at most θ and ``l`` items.

    The caller must ensure two things. A sender's items arrive in the order of their numbers: items that
    were in flight when a receiver was lost must not reach it later, otherwise items that are sent again
    would be taken for known ones. And events are taken one at a time: the next one only when all that
    the last one asked for is done, and a ``ProcessItems`` counts as done only when the backup that it
    made necessary is durable.

    Args:
        state: The receiver's.
        event: What happened.
        l: Most items that may be at risk now: ``Thresholds.l``.

    Example:
        >>> came = ItemsArrived(sender="a", first=1, count=3)
        >>> receive(ReceiverState(), came, 3)[1]
        (TakeItems(skip=0, first=1, last=3), Acknowledge(sender='a', upto=3))
        >>> receive(ReceiverState(), came, 2)[1][1]
        BackUpItems(first=1, last=3)
    """
    if isinstance(event, ReadyToProcess):
        return _process(state, min(event.upto, state.received))
    if isinstance(event, StateSaved):
        saved = _tidy(replace(state, dropped=max(state.dropped, state.processed)))
        return saved, (DropItems(upto=saved.dropped),)
    if isinstance(event, ItemsSaved):
        upto = min(max(state.backed_up, event.upto), state.received)
        return _tidy(replace(state, backed_up=upto)), ()
    return _arrive(state, event, l)


def take_next(
    state: ReceiverState,
    count: int,
    l: float,  # noqa: E741 - the paper's letter
) -> tuple[ReceiverState, bool]:
    """Number items that follow right on what their sender is known to have sent.

    The same as ``receive`` of such ``ItemsArrived``, but for ``heard``, which the caller keeps: a server
    does this for every batch, and makes no events and instructions for it.

    Args:
        state: The receiver's.
        count: How many items; they get the numbers after ``state.received``.
        l: Most items that may be at risk now.

    Returns:
        The new state, and whether all pending items must be durable before these are acknowledged.

    Example:
        >>> take_next(ReceiverState(received=2), 3, 5)[1], take_next(ReceiverState(received=2), 4, 5)[1]
        (False, True)
    """
    last = state.received + count
    came = replace(state, received=last)
    if came.at_risk <= l:
        return came, False
    return _tidy(replace(came, backed_up=last)), True


def _arrive(
    state: ReceiverState,
    event: ItemsArrived | PunctuationArrived,
    l: float,  # noqa: E741
) -> _Step:
    items = event.count if isinstance(event, ItemsArrived) else 1
    newest = event.first + items - 1
    known = _heard_of(state, event.sender)
    # Items that arrive again are acknowledged again: the first acknowledgement may have been lost.
    told = Acknowledge(sender=event.sender, upto=max(known, newest))
    if newest <= known:
        return state, (told,)
    skip = max(0, known + 1 - event.first)
    last = state.received + items - skip
    asked: list[ReceiverInstruction] = [TakeItems(skip=skip, first=state.received + 1, last=last)]
    state = replace(state, received=last, heard=_hear(state, event.sender, newest))
    if isinstance(event, PunctuationArrived):
        state = replace(state, punctuation=(*state.punctuation, last))
        asked.append(BackUpPunctuation(number=last))
    if state.at_risk > l:
        oldest = max(state.processed, state.backed_up) + 1
        asked.append(BackUpItems(first=oldest, last=last))
        state = _tidy(replace(state, backed_up=last))
    return state, (*asked, told)


def _heard_of(state: ReceiverState, sender: str) -> int:
    return next((number for name, number in state.heard if name == sender), 0)


def _hear(state: ReceiverState, sender: str, newest: int) -> tuple[tuple[str, int], ...]:
    if len(state.heard) == 1 and state.heard[0][0] == sender:  # the usual case, many times a second
        return ((sender, newest),)
    return tuple(sorted({**dict(state.heard), sender: newest}.items()))


def _process(state: ReceiverState, upto: int) -> _Step:
    asked: list[ReceiverInstruction] = []
    done, dropped = state.processed, state.dropped
    while done < upto:
        if done < state.backed_up:
            last = min(upto, state.backed_up)
        elif done + 1 in state.punctuation:
            last = done + 1
        else:
            marks = state.punctuation
            if state.backed_up > dropped or any(dropped < mark <= done for mark in marks):
                asked.append(DropItems(upto=done))
                dropped = done
            last = min((upto, *(mark - 1 for mark in marks if mark > done)))
        asked.append(ProcessItems(first=done + 1, last=last))
        done = last
    return _tidy(replace(state, processed=done, dropped=dropped)), tuple(asked)


def _tidy(state: ReceiverState) -> ReceiverState:
    """Forget punctuation whose own backup no longer makes a difference."""
    past = max(state.dropped, state.backed_up)
    return replace(state, punctuation=tuple(mark for mark in state.punctuation if mark > past))


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers to process again after a loss, both ends included; empty if ``last`` < ``first``.

    Example:
        >>> Replay(first=4, last=6).numbers
        range(4, 7)
    """

    first: int
    last: int

    @property
    def numbers(self) -> range:
        """Oldest first. Items without a backup were lost, and are left out."""
        return range(self.first, self.last + 1)


def replay(log: Iterable[BackUpItems | BackUpPunctuation | DropItems], after: int) -> Replay:
    """Choose which backed-up items to process again onto a restored state.

    Args:
        log: What was made durable, in any order.
        after: Number of the newest item in the restored state.

    Example:
        >>> log = [BackUpItems(first=1, last=4), DropItems(upto=4), BackUpItems(first=9, last=11)]
        >>> replay(log, after=2).numbers
        range(5, 12)
    """
    base, last = after, 0
    for entry in log:
        if isinstance(entry, DropItems):
            base = max(base, entry.upto)
        else:
            last = max(last, entry.number if isinstance(entry, BackUpPunctuation) else entry.last)
    return Replay(first=base + 1, last=max(base, last))


def recovered(saved: ReceiverState, chosen: Replay, used: int = 0) -> ReceiverState:
    """The receiver's state after a loss, before ``chosen`` is processed again.

    Numbers of lost items above ``chosen`` are used again, unless somebody may know them: a number that
    others refer to must never name another item.

    Args:
        saved: As stored with the newest readable backup, of items or of the state.
        chosen: What ``replay`` gave.
        used: Newest number that anybody may know; the next item gets a later one.

    Example:
        >>> recovered(ReceiverState(received=20, processed=7), Replay(first=9, last=11)).at_risk
        0
        >>> known = recovered(ReceiverState(), Replay(first=9, last=11), used=20)
        >>> known.received, known.at_risk
        (20, 0)
    """
    return ReceiverState(
        received=max(chosen.last, used),
        processed=chosen.first - 1,
        backed_up=max(chosen.last, used),
        dropped=chosen.first - 1,
        heard=saved.heard,
    )
