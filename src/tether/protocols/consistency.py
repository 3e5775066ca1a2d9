"""The consistency manager: answers within X from the input that is there, corrected later.

Time is cut into buckets. A bucket is *complete* when every input has announced that no rows older than
the bucket's end will come. Two frontiers move along the buckets, and each release of rows moves one of
them:

- the *stable* frontier passes complete buckets only, each once and in order. What it releases is final.
- the *tentative* frontier runs ahead of it while an input is missing: it releases the rows of a bucket
  that are there once the bucket has waited αX. The stable frontier reaches the same buckets later, and
  their early results are withdrawn then.

So stable rows are never withdrawn, whatever fails: no instruction exists for it. The paper's three
states are what the two frontiers look like (DPC 2005, Figure 2). STABLE: both are at one place.
UP_FAILURE: the tentative one is ahead, and the next bucket is not complete. STABILIZATION: it is ahead,
and the next bucket is complete by now. Unlike the paper's node, this one corrects a bucket as soon as it
is complete, and does not wait for the end of the whole failure. So an input that is always late delays
stable rows only by its own lateness.

State is kept at the stable frontier; work ahead of it is done on a copy.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

Phase = Literal["stable", "up-failure", "stabilization"]
Kind = Literal["stable", "tentative"]

START = -(2**53)
"""A number before all buckets, which JSON readers of any language can represent exactly."""


class Handling(msgspec.Struct, frozen=True, kw_only=True):
    """What to do while an input is missing, and while its rows are corrected later.

    Args:
        wait: αX, seconds: how long the first row of a bucket waits for the others before the bucket is
            given without them. ``math.inf``: for ever, so that nothing is ever tentative.
        failure: ``"process"``: after the first wait, a bucket is given as soon as the inputs that are
            there have ended it. ``"delay"``: each waits nearly αX.
        stabilization: The same for new buckets while late ones are corrected; ``"suspend"``: they wait
            until all is.
        most: Largest number of buckets in one release.
        spare: (1 - α)X, seconds: how long a release may take.
    """

    wait: float
    failure: Literal["process", "delay"] = "process"
    stabilization: Literal["process", "delay", "suspend"] = "process"
    most: int = 1_000
    spare: float = 0.0

    def delayed(self, releases: int) -> float:
        """How long a bucket is delayed where this number of releases may precede its answer.

        While an input is missing there are two: one that was in hand when the bucket's time was over,
        and its own. While late buckets are corrected there are three: a stable one takes its turn
        between them. So a bucket is given earlier than αX, as if each of them took all of (1 - α)X, or
        a third of X where that is less: three that take longer come too late without any delay.

        Example:
            >>> patient, eager = Handling(wait=2.7, spare=0.3), Handling(wait=1.0, spare=2.0)
            >>> [round(patient.delayed(releases), 3) for releases in (2, 3)]
            [2.4, 2.1]
            >>> [eager.delayed(releases) for releases in (2, 3)]
            [1.0, 0.0]
        """
        longest = self.wait + self.spare
        return min(self.wait, longest - releases * min(self.spare, longest / 3))


class Manager(msgspec.Struct, frozen=True, kw_only=True):
    """The manager's state between two looks at its inputs. It is stored in Spark's offset log."""

    phase: Phase = "stable"
    stable: int = START
    """First bucket that has not been released as stable."""
    ahead: int = START
    """First bucket that has not been released at all; never below ``stable``."""
    silent: frozenset[int] = frozenset()
    """Inputs that the tentative frontier does not wait for."""
    following: tuple[int, ...] = ()
    """For each input, the replica that its rows were last taken from."""
    corrected_last: bool = True
    """Whether the next release is tentative, where both kinds are due: they alternate."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica of an input has announced. All numbers are of buckets."""

    complete: int = START
    """First bucket of which stable rows may still come."""
    reach: int = START
    """First bucket of which rows of any kind may still come; never below ``complete``."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that may fall into any of these buckets, the last one included."""

    first: int
    last: int
    arrived: float
    """When they arrived, in seconds on the clock of the observer."""


class Look(msgspec.Struct, frozen=True, kw_only=True, tag="look"):
    """The state of all inputs at one moment."""

    now: float
    inputs: tuple[tuple[Replica, ...], ...]
    """For each input its replicas; one that cannot be reached is as it was last seen."""
    waiting: tuple[Waiting, ...] = ()
    """Rows at or after the stable frontier."""
    postponed: bool = False
    """Whether late buckets must not be corrected now, because a replica of this query does that
    first."""


class TentativeLost(msgspec.Struct, frozen=True, kw_only=True, tag="tentative-lost"):
    """The copy of the state that ran ahead is lost: its results are withdrawn, and computed again."""


class Enter(msgspec.Struct, frozen=True, kw_only=True, tag="enter"):
    """The manager is in another state now."""

    phase: Phase


class CopyState(msgspec.Struct, frozen=True, kw_only=True, tag="copy-state"):
    """Copy the state as it is at the stable frontier: tentative buckets are processed on the copy."""

    bucket: int


class Switch(msgspec.Struct, frozen=True, kw_only=True, tag="switch"):
    """From this release on an input's rows are taken from another replica."""

    input: int
    replica: int


class Undo(msgspec.Struct, frozen=True, kw_only=True, tag="undo"):
    """Withdraw the early results of these buckets."""

    first: int
    end: int
    """First bucket whose results are not withdrawn."""


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="release"):
    """Release the rows of these buckets, ordered by (tuple time, input, sequence)."""

    kind: Kind
    first: int
    end: int
    """First bucket that is not released."""
    replicas: tuple[int, ...]
    """For each input, whose rows."""


class DropCopy(msgspec.Struct, frozen=True, kw_only=True, tag="drop-copy"):
    """The stable frontier has caught up: the copy of the state is not needed any more."""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """Tell readers that corrections have ended (the paper's REC_DONE)."""

    forced: bool
    """Whether a new failure came first: tentative rows after this are of that one."""


class Wait(msgspec.Struct, frozen=True, kw_only=True, tag="wait"):
    """Nothing can be released now."""

    until: float
    """Look again at this time even if nothing comes; ``math.inf`` where nothing waits."""


Instruction = Enter | CopyState | Switch | Undo | Release | DropCopy | Done | Wait
Step = tuple[Manager, tuple[Instruction, ...]]


def manage(state: Manager, event: Look | TentativeLost, handling: Handling) -> Step:
    """Take one event in; give the new state and what must be done, each before the next.

    A look leads to one release at most, of one kind: an epoch.

    Example:
        >>> there, silent = Replica(complete=9, reach=9), Replica(complete=5, reach=5)
        >>> rows = Waiting(first=5, last=8, arrived=100.0)
        >>> patient = Handling(wait=2.7)
        >>> begun = Manager(stable=5, ahead=5, following=(0, 0))
        >>> look = Look(now=101.0, inputs=((there,), (silent,)), waiting=(rows,))
        >>> manage(begun, look, patient)[1]
        (Wait(until=102.7),)
        >>> state, asked = manage(begun, replace(look, now=102.7), patient)
        >>> [type(each).__name__ for each in asked], asked[-1].kind, state.phase, state.ahead
        (['Enter', 'CopyState', 'Release'], 'tentative', 'up-failure', 9)
    """
    if isinstance(event, TentativeLost):
        return _again(state)
    state = replace(state, following=state.following or (0,) * len(event.inputs))
    complete = complete_before(event)
    if event.postponed and state.ahead > state.stable:
        complete = state.stable  # for this bucket the inputs are still missing
    entered: tuple[Instruction, ...] = ()
    if state.ahead > state.stable:
        phase: Phase = "stabilization" if complete > state.stable else "up-failure"
        # New buckets come first when corrections begin, because they cannot wait any longer.
        state = replace(state, corrected_last=state.corrected_last or state.phase != phase)
        state, entered = _changed(state, phase)
    state = replace(state, silent=_still_silent(state, event))
    new = _new_buckets(state, event, handling, complete)
    correct = complete > state.stable
    if correct and (new is None or not state.corrected_last or state.ahead == state.stable):
        state, done = _stable(state, event, handling, complete)
    elif new is not None:
        state, done = _tentative(state, event, new)
    else:
        done = (Wait(until=_next_deadline(state, event, handling)),)
    return state, (*entered, *done)


def complete_before(look: Look) -> int:
    """The first bucket that some input has not ended yet."""
    return min(max(each.complete for each in replicas) for replicas in look.inputs)


# ---- the stable frontier ---------------------------------------------------------------------------


def _stable(state: Manager, look: Look, handling: Handling, complete: int) -> Step:
    first = _next_rows(look, state.stable)
    # Empty buckets are skipped: the number of buckets is counted from the first one that may have rows.
    end = complete if first is None else min(complete, max(first, state.stable) + handling.most)
    state, switched = _follow(state, look, end, stable=True)
    undone: tuple[Instruction, ...] = ()
    if state.ahead > state.stable:
        undone = (Undo(first=state.stable, end=min(end, state.ahead)),)
    given = Release(kind="stable", first=state.stable, end=end, replicas=state.following)
    caught_up = bool(undone) and end >= state.ahead
    state = replace(state, stable=end, ahead=max(end, state.ahead), corrected_last=True)
    done: tuple[Instruction, ...] = (*switched, *undone, given)
    if caught_up:
        state = replace(state, silent=frozenset())
        state, entered = _changed(state, "stable")
        done += (DropCopy(), *entered)
    return state, done


# ---- the tentative frontier ------------------------------------------------------------------------


def _new_buckets(state: Manager, look: Look, handling: Handling, complete: int) -> int | None:
    """The bucket before which the tentative frontier may go now; None: it has to stay."""
    correcting = state.ahead > state.stable and complete > state.stable
    if correcting and handling.stabilization == "suspend":
        return None
    end, begun, silent = None, state.ahead > state.stable, state.silent
    first = _next_rows(look, state.ahead)
    while first is not None and (end is None or first < state.ahead + handling.most):
        # The first bucket of a failure always waits, because most failures are so short that none is
        # noticed.
        wait = _wait(handling, correcting=correcting) if begun else None
        if not _due(look, handling, first, silent, wait):
            break
        # Later buckets would be late if they waited as long, because other releases come first.
        end, begun, silent = first + 1, True, silent | _behind(look, first + 1)
        first = _next_rows(look, end)
    return end


def _wait(handling: Handling, *, correcting: bool) -> float:
    """How long a bucket waits that comes after the first of a failure, even if all of it has come."""
    way = handling.stabilization if correcting else handling.failure
    return handling.delayed(3 if correcting else 2) if way == "delay" else 0.0


def _due(
    look: Look, handling: Handling, bucket: int, silent: frozenset[int], wait: float | None
) -> bool:
    arrived = _arrived(look, bucket)
    if look.now >= arrived + handling.wait:
        return True
    return wait is not None and look.now >= arrived + wait and _ended(look, bucket, silent)


def _ended(look: Look, bucket: int, silent: frozenset[int]) -> bool:
    """Whether all rows of a bucket have come, from all inputs that are not silent.

    Those that come after it was given have no answer before the failure is over.
    """
    there = set(range(len(look.inputs))) - silent
    return bool(there) and not there & _behind(look, bucket + 1)


def _behind(look: Look, end: int) -> frozenset[int]:
    """Inputs of which rows of earlier buckets may still come."""
    return frozenset(
        number
        for number, replicas in enumerate(look.inputs)
        if max(each.reach for each in replicas) < end
    )


def _tentative(state: Manager, look: Look, end: int) -> Step:
    done: tuple[Instruction, ...] = ()
    if state.ahead == state.stable:
        state, entered = _changed(state, "up-failure")
        done = (*entered, CopyState(bucket=state.stable))
    state, switched = _follow(state, look, end, stable=False)
    given = Release(kind="tentative", first=state.ahead, end=end, replicas=state.following)
    state = replace(
        state, ahead=end, silent=state.silent | _behind(look, end), corrected_last=False
    )
    return state, (*done, *switched, given)


def _still_silent(state: Manager, look: Look) -> frozenset[int]:
    """Inputs that have not come back to where the tentative frontier is."""
    return frozenset(
        number
        for number in state.silent
        if max(each.reach for each in look.inputs[number]) <= state.ahead
    )


def _again(state: Manager) -> Step:
    if state.ahead == state.stable:
        return state, ()
    undo = Undo(first=state.stable, end=state.ahead)
    state = replace(state, ahead=state.stable, silent=frozenset(), corrected_last=True)
    state, entered = _changed(state, "stable")
    return state, (undo, DropCopy(), *entered)


# ---- what both share -------------------------------------------------------------------------------


def _follow(state: Manager, look: Look, end: int, *, stable: bool) -> Step:
    """For each input the replica with the most rows; the current one if it has enough."""
    chosen = []
    for now, replicas in zip(state.following, look.inputs, strict=True):
        worth = [
            (each.complete >= end, stable or each.reach >= end, number == now, each.reach, -number)
            for number, each in enumerate(replicas)
        ]
        chosen.append(worth.index(max(worth)))
    switched = tuple(
        Switch(input=number, replica=after)
        for number, (before, after) in enumerate(zip(state.following, chosen, strict=True))
        if before != after
    )
    return replace(state, following=tuple(chosen)), switched


def _changed(state: Manager, phase: Phase) -> Step:
    """A new state; if corrections end, in time or because of a new failure, that is announced."""
    if phase == state.phase:
        return state, ()
    done: tuple[Instruction, ...] = ()
    if state.phase == "stabilization":
        done = (Done(forced=phase == "up-failure"),)
    return replace(state, phase=phase), (*done, Enter(phase=phase))


def _next_rows(look: Look, bucket: int) -> int | None:
    """The first bucket from this one on that may hold rows."""
    return min(
        (max(each.first, bucket) for each in look.waiting if each.last >= bucket), default=None
    )


def _arrived(look: Look, bucket: int) -> float:
    return min(each.arrived for each in look.waiting if each.first <= bucket <= each.last)


def _next_deadline(state: Manager, look: Look, handling: Handling) -> float:
    first = _next_rows(look, state.ahead)
    if first is None:
        return float("inf")
    sooner = state.ahead > state.stable and _ended(look, first, state.silent)
    wait = _wait(handling, correcting=False) if sooner else handling.wait
    return _arrived(look, first) + wait
