"""A query in this process, without Spark: for unit tests of operators, losses included."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.accounts import Account
from tether.core.bound import bound_of_query
from tether.core.errors import BadValueError
from tether.core.ids import Epoch
from tether.core.placement import Placement
from tether.core.windows import Hopping
from tether.declared import (
    Linked,
    amplification_between,
    check_durable,
    counted,
    errors_of_copies,
)
from tether.operator import EndedWindow
from tether.output import Output
from tether.policies.no_tolerance import NoTolerance
from tether.sources.ddl import arrow_schema
from tether.state.hashing import combine, mix, mix_bytes
from tether.state.slot import SlotState
from tether.testing.local_slot import LocalSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from tether.core.amplification import Amplification
    from tether.core.bound import Bound
    from tether.core.windows import Window
    from tether.operator import Operator
    from tether.policies.policy import Policy

SOURCE = "rows"
"""Name of the input where there is only one."""

_SEED = 0x7E7BE2


@dataclass
class Stage:
    """An operator's place in a ``LocalPipeline``.

    Args:
        operator: The operator.
        key: Rows of equal key meet in one slot. Without a key rows are dealt out in turn.
        parallelism: Number of slots.
        inputs: Names of sources and of earlier operators whose rows come in; by default the stage
            before, and for the first one the source.
        feedback_to: Name of the operator that gets what this one feeds back.
        policy: The stage's own policy; by default the pipeline's.
        amplification: As for ``apply``: most error that one of an operator before can bring.
    """

    operator: Operator
    key: Sequence[str] = ()
    parallelism: int = 1
    inputs: Sequence[str] = ()
    feedback_to: str | None = None
    policy: Policy | None = None
    amplification: float | Mapping[str, float] | None = None
    slots: list[LocalSlot] = field(default_factory=list, init=False)
    output: pa.Schema | None = field(default=None, init=False)
    feedback: pa.Schema | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.operator.name


class LocalPipeline:
    """Operators in a row (or a graph of them) on memory of this process, epoch by epoch.

    It runs the real state primitives under the real policies; only Spark and the backup files are
    missing. So a test of an operator, with losses at chosen epochs, takes milliseconds.

    Guarantee: what a loss takes is what it would take on Spark: all that was not durable at the
    last committed epoch, at most θ.

    Args:
        stages: Operators, each after those it reads from.
        tolerance: The policy of stages that have none of their own; no tolerance by default.
        staleness: By how many epochs feedback comes late: 0 is BSP, s is the worst case of SSP(s);
            or a function from the epoch to such a number.
        batch_rows: Rows given to ``process`` at once, as Spark's ``maxRecordsPerBatch``.

    Example:
        >>> from tether import Approximate, Operator
        >>> class Count(Operator):
        ...     output = "word string, n bigint"
        ...     def setup(self, state):
        ...         self.seen = state.table("seen", {"word": pa.string()}, {"n": "int64"})
        ...     def process(self, batch, out):
        ...         self.seen.add(batch.select(["word"]), n=1)
        ...     def on_epoch_end(self, out):
        ...         out.emit(self.seen.rows_to_batch(self.seen.changed()))
        >>> pipeline = LocalPipeline([Stage(Count(), key=["word"])], tolerance=Approximate(4))
        >>> pipeline.run(pa.table({"word": ["a", "b", "a"]}))["n"].to_pylist()
        [2, 1]
        >>> pipeline.lose("count", 0)
        >>> pipeline.run(pa.table({"word": ["a"]}))["n"].to_pylist()  # 2 of 3 were made durable
        [3]
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        tolerance: Policy | None = None,
        staleness: int | Callable[[int], int] = 0,
        batch_rows: int = 10_000,
    ) -> None:
        if not stages:
            raise BadValueError("A pipeline needs an operator.", do="Pass at least one Stage.")
        self.stages = {stage.name: stage for stage in stages}
        if len(self.stages) < len(stages):
            raise BadValueError(
                "Two operators of the pipeline have one name.",
                do="Give one of them a class, or a `name`, of its own.",
            )
        self._policy = tolerance if tolerance is not None else NoTolerance()
        self._staleness = staleness if callable(staleness) else lambda _: staleness
        self._batch_rows = batch_rows
        self._feedback: dict[str, deque[tuple[int, list[pa.RecordBatch]]]] = {}
        self._delivered: dict[str, int] = {}
        self._silent: set[tuple[str, int]] = set()
        self._reports: list[dict[str, Any]] = []
        self.epoch = 0
        self.amplification: Amplification | None = None
        """How errors spread from operator to operator; known when the first epoch has run."""
        self.feedback_used: list[tuple[int, str, int]] = []
        """(epoch, operator, epoch whose feedback it used), for all uses."""
        before: str = SOURCE
        for stage in stages:
            stage.inputs = tuple(stage.inputs) or (before,)
            before = stage.name

    def run(self, rows: pa.Table | Mapping[str, pa.Table]) -> pa.Table:
        """Run one epoch; give what the last operator emitted.

        Args:
            rows: The epoch's rows; by name of the source where there are several.
        """
        tables: dict[str, pa.Table] = dict(rows) if isinstance(rows, dict) else {SOURCE: rows}
        if self.amplification is None:
            self._bind({name: table.schema for name, table in tables.items()})
        fed: list[tuple[str, list[pa.RecordBatch]]] = []
        self._reports = []
        last: pa.Table | None = None
        for stage in self.stages.values():
            taken = [tables[name] for name in stage.inputs]
            given = pa.concat_tables(taken) if len(taken) > 1 else taken[0]
            last, fed_back = self._run_stage(stage, given)
            tables[stage.name] = last
            if fed_back and stage.feedback_to is not None:
                fed.append((stage.feedback_to, fed_back))
        for name, items in fed:
            self._feedback.setdefault(name, deque(maxlen=1024)).append((self.epoch, items))
        self.epoch += 1
        assert last is not None
        return last

    def run_all(self, epochs: Sequence[pa.Table]) -> list[pa.Table]:
        """Run several epochs; give what the last operator emitted in each."""
        return [self.run(rows) for rows in epochs]

    def lose(self, operator: str, slot: int) -> None:
        """Lose the resident state of one slot, between two epochs."""
        self.stages[operator].slots[slot].lose(Epoch(self.epoch))

    def lose_all(self) -> None:
        """Lose all slots' memory at once, and the feedback that was on its way."""
        self._feedback.clear()
        for stage in self.stages.values():
            for slot in stage.slots:
                slot.lose(Epoch(self.epoch))

    def silence(self, slots: Collection[tuple[str, int]]) -> None:
        """From now on these slots, and no others, take nothing in and give nothing out.

        So it is with slots that are lost while the others go on (PPA 2016 §V-B).

        Args:
            slots: Operator and number of each.
        """
        self._silent = {(operator, slot) for operator, slot in slots}

    def slots(self) -> list[dict[str, Any]]:
        """Rows in and out of each slot in the newest epoch, as ``Query.slots`` tells them."""
        return list(self._reports)

    def bound(self, operator: str | None = None) -> Bound:
        """How wrong the answer can be, as a query on Spark would tell it.

        Args:
            operator: One operator of several; without it the one that can be most wrong.
        """
        accounts = []
        for stage in self.stages.values():
            window = self._window_of(stage)
            by_epochs = window is not None and window.by == "epochs"
            accounts.append(
                Account(
                    operator=stage.name,
                    budget=(stage.policy or self._policy).budget,
                    facts=tuple(slot.facts(stage.name) for slot in stage.slots),
                    window=window,
                    now=float(self.epoch - 1) if by_epochs else None,
                )
            )
        budget = self._policy.budget if self._shared else None
        return bound_of_query(accounts, self.amplification, shared=budget, only=operator)

    @property
    def _shared(self) -> bool:
        """Whether all operators share one budget."""
        return all(stage.policy is None for stage in self.stages.values())

    def backups(self) -> int:
        """Backups written so far, by all slots."""
        return sum(slot.backups for stage in self.stages.values() for slot in stage.slots)

    def backup_bytes(self) -> int:
        """Bytes of all backups so far."""
        return sum(slot.backup_bytes for stage in self.stages.values() for slot in stage.slots)

    def _bind(self, schemas: dict[str, pa.Schema]) -> None:
        """Bind all operators, upstream ones first, and give each slot its share of the budget."""
        from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - only where needed

        specs: dict[str, list[dict[str, Any]]] = {}
        linked: dict[str, Linked] = {}
        for stage in self.stages.values():
            operator = stage.operator
            operator.bind(from_arrow_schema(schemas[stage.inputs[0]]), list(stage.key))
            stage.output = schemas[stage.name] = arrow_schema(operator.output)
            if operator.feedback is not None:
                stage.feedback = arrow_schema(operator.feedback)
            state = SlotState.heap()
            copy.copy(operator).setup(state)
            specs[stage.name] = list(state.specs().values())
            linked[stage.name] = Linked(
                operator=operator,
                losing=bool(counted(specs[stage.name])),
                window=self._window_of(stage),
                told=stage.amplification,
                senders={name: True for name in stage.inputs if name in self.stages},
                feedback=[s.name for s in self.stages.values() if s.feedback_to == stage.name],
                slots=stage.parallelism,
                key=stage.key,
                specs=specs[stage.name],
            )
        self.amplification = amplification_between(linked)
        for stage in self.stages.values():
            errors = errors_of_copies(stage.operator, stage.key, specs[stage.name])
            place = Placement(copies=stage.parallelism, errors_of_copies=errors)
            # A policy of its own is a budget of its own.
            place = self.amplification.placed(stage.name, place, shared=stage.policy is None)
            policy = stage.policy or self._policy
            check_durable(stage.name, specs[stage.name], policy.threshold(policy.initial(), place))
            stage.slots = [
                LocalSlot(number, stage.operator, policy, place)
                for number in range(stage.parallelism)
            ]

    def _window_of(self, stage: Stage) -> Window | None:
        policy = stage.policy or self._policy
        return policy.window

    def _run_stage(self, stage: Stage, rows: pa.Table) -> tuple[pa.Table, list[pa.RecordBatch]]:
        assert stage.output is not None
        fed = self._newest_feedback(stage.name)
        window = self._window(stage)
        emitted: list[pa.RecordBatch] = []
        fed_back: list[pa.RecordBatch] = []
        home = slot_of(rows, stage.key, stage.parallelism)
        for slot in stage.slots:
            if (stage.name, slot.number) in self._silent:
                continue
            mine = rows if stage.parallelism == 1 else rows.filter(pa.array(home == slot.number))
            batches = mine.combine_chunks().to_batches(max_chunksize=self._batch_rows)
            out = Output(stage.output, stage.feedback)
            rows_in = [batch for batch in batches if batch.num_rows]
            given = slot.run(Epoch(self.epoch), rows_in, fed, out, window)
            emitted += given
            fed_back += out.drain_feedback()
            self._reports.append(
                {
                    "operator": stage.name,
                    "slot": slot.number,
                    "rows_in": mine.num_rows,
                    "rows_out": sum(batch.num_rows for batch in given),
                }
            )
        return pa.Table.from_batches(emitted, stage.output), fed_back

    def _newest_feedback(self, name: str) -> list[pa.RecordBatch]:
        newest = self.epoch - 1 - self._staleness(self.epoch)
        ready = [entry for entry in self._feedback.get(name, ()) if entry[0] <= newest]
        if not ready:
            return []
        epoch, items = ready[-1]
        self.feedback_used.append((self.epoch, name, epoch))
        again = self._delivered.get(name) == epoch
        self._delivered[name] = epoch
        return [] if again else items  # items of one epoch come once

    def _window(self, stage: Stage) -> EndedWindow | None:
        window = self._window_of(stage)
        if window is None or not isinstance(window, Hopping) or window.by != "epochs":
            return None
        done = self.epoch + 1
        return (
            None
            if done % window.length
            else EndedWindow(start=done - window.length, end=done, by="epochs")
        )


def slot_of(rows: pa.Table, key: Sequence[str], slots: int) -> NDArray[np.int64]:
    """The slot of each row: by a hash of its key, or in turn where there is none.

    Example:
        >>> homes = slot_of(pa.table({"k": [7, 8, 7]}), ["k"], 4)
        >>> bool(homes[0] == homes[2])
        True
    """
    if not key or slots == 1:
        return np.arange(rows.num_rows) % slots
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in key:
        column = rows[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if pa.types.is_integer(column.type) and not column.null_count:
            part = mix(column.to_numpy(zero_copy_only=False), _SEED)
        else:
            text = column.cast(pa.string()).fill_null("\0null").cast(pa.large_binary())
            offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset :][: len(text) + 1]
            data = np.frombuffer(text.buffers()[2] or b"", np.uint8)
            part = mix_bytes(data, offsets, _SEED)
        hashes = combine(hashes, part, _SEED)
    return (hashes % np.uint64(slots)).astype(np.int64)
