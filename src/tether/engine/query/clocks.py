"""The progress of event time in each operator, kept over epochs, restarts and snapshots.

A restart must know which windows have ended: a window that is ended twice, or never, makes the state
wrong, and no account of losses would show it. So an operator whose windows end by event time keeps its
clock in the commit log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tether.backup.commits import SlotCommit
from tether.backup.names import slot_key
from tether.core.ids import DRIVERS, Epoch
from tether.engine.event_time import advance
from tether.engine.messages import StreamClock
from tether.engine.ports import by_operator
from tether.engine.query.feedback_box import items_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.backup.history import CommitHistory
    from tether.backup.recorded import CompleteSnapshot
    from tether.core.graph import SlotId
    from tether.engine.messages import SlotStatus
    from tether.engine.operators import QueryOperator
    from tether.engine.ports import Store

_CLOCK = msgspec.msgpack.Decoder(StreamClock)
_SCHEMA = pa.schema([(name, pa.float64()) for name in StreamClock.__struct_fields__])


class Clocks:
    """The clocks of some operators.

    Args:
        operators: The operators.
    """

    def __init__(self, operators: Iterable[QueryOperator]) -> None:
        self._operators = list(operators)
        self._now = {one.name: StreamClock() for one in self._operators}

    def now(self, operator: str) -> StreamClock:
        """The clock as of the last committed epoch."""
        return self._now[operator]

    def advance(self, statuses: Mapping[SlotId, SlotStatus], epoch: Epoch) -> dict[str, SlotCommit]:
        """Advance by the event times of an epoch; return the entries for its commit record."""
        entries = {}
        for one in self._operators:
            before = self._now[one.name]
            spans = [s.event_times for s in by_operator(statuses, one.name).values()]
            after = self._now[one.name] = advance(before, spans, one.lateness)
            if one.keeps_clock and clock_has_news(one, before, after):
                entries[slot_key(clock_name(one), DRIVERS)] = clock_commit(after, epoch)
        return entries

    def fork(self) -> Clocks:
        """A copy, which advances independently."""
        other = Clocks(self._operators)
        other._now = dict(self._now)
        return other

    def reset(self) -> None:
        """Forget everything."""
        self._now = {one.name: StreamClock() for one in self._operators}

    def resume(self, history: CommitHistory, epoch: Epoch) -> None:
        """Load what is recorded for a query that runs ``epoch`` next."""
        for one in self._operators:
            if one.keeps_clock:
                self._now[one.name] = stored_clock(history, one, epoch)

    def restore(self, store: Store, snapshot: CompleteSnapshot) -> None:
        """Take over the clocks that a snapshot holds."""
        for one in self._operators:
            for batch in items_of(store, snapshot, clock_name(one)):
                self._now[one.name] = msgspec.convert(batch.to_pylist()[0], StreamClock)

    def held(self) -> dict[str, list[pa.RecordBatch]]:
        """What a snapshot holds of the clocks, by the name under which it is stored."""
        return {
            clock_name(one): [
                pa.RecordBatch.from_pylist([msgspec.to_builtins(self._now[one.name])], _SCHEMA)
            ]
            for one in self._operators
            if one.keeps_clock
        }


def clock_has_news(operator: QueryOperator, before: StreamClock, after: StreamClock) -> bool:
    """Whether a restart must know the clock as of this epoch.

    It must if the clock has a value for the first time, or has passed the end of a window. Under an
    exact policy every epoch is recorded anyway.
    """
    exact = operator.policy.recovery.exact
    if exact or after.watermark is None or after.passed is None:
        return exact
    if before.watermark is None:
        return True
    window = operator.window
    if window is None:
        return False
    return any(True for _ in window.ends(after=after.passed, upto=after.watermark))


def clock_name(operator: QueryOperator) -> str:
    """The name under which the operator's clock is stored."""
    return f"{operator.name}.clock"


def clock_commit(clock: StreamClock, epoch: Epoch) -> SlotCommit:
    """The clock as of the end of an epoch, as an entry of its commit record."""
    packed = msgspec.msgpack.encode(clock)
    return SlotCommit(epoch=epoch, divergence_after=0.0, theta=0.0, policy_state=packed)


def stored_clock(history: CommitHistory, operator: QueryOperator, epoch: Epoch) -> StreamClock:
    """The clock of a query that runs ``epoch`` next; an empty one where none is stored."""
    facts = history.slot_facts(clock_name(operator), DRIVERS, epoch)
    if not facts.policy_state:
        return StreamClock()
    clock = _CLOCK.decode(facts.policy_state)
    if facts.epoch == epoch - 1:
        return clock
    # Windows that this clock ends were ended in the epoch after it, and none has ended since. Newer rows
    # # may have come, and the position of a loss must not be earlier than theirs.
    return msgspec.structs.replace(clock, passed=clock.watermark, newest=None)
