"""A query in this process, without Spark: for unit tests of operators, losses included."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.errors import BadValueError, OperatorError
from tether.core.graph import Edge, Graph, Node, SlotId
from tether.core.ids import Slot, each_slot
from tether.core.placement import Placement
from tether.declared import (
    Linked,
    amplification_between,
    check_durable,
    counted,
    errors_of_copies,
)
from tether.engine.operators import QueryOperator, QuerySettings
from tether.engine.query.ledger import Spread, bound_of
from tether.local.run import LocalRun
from tether.policies.no_tolerance import NoTolerance
from tether.sources.ddl import arrow_schema
from tether.state.hashing import combine, mix, mix_bytes
from tether.state.slot import SlotState
from tether.testing.late_feedback import LateFeedback
from tether.testing.local_slot import LocalSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from tether.core.amplification import Amplification
    from tether.core.bound import Bound
    from tether.engine.query.ledger import Ledger
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

    It is a host of the same engine as Spark (:mod:`tether.local`): slots, backups, recoveries and
    rewinds are the real ones, under every policy; only Spark and the backup files are missing. So a
    test of an operator, with losses at chosen epochs, takes milliseconds.

    Guarantee: what a loss takes is what it would take on Spark: all that was not durable at the
    last committed epoch, at most θ. It is counted when the slot recovers, in the next epoch.

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
        self._silent: frozenset[SlotId] = frozenset()
        self._query: LocalRun | None = None
        self._feedback: LateFeedback | None = None
        self.amplification: Amplification | None = None
        """How errors spread from operator to operator; known when the first epoch has run."""
        self.feedback_used: list[tuple[int, str, int]] = []
        """(epoch, operator, epoch whose feedback it used), for all uses."""
        for before, stage in pairwise([None, *stages]):
            assert stage is not None
            stage.inputs = tuple(stage.inputs) or (SOURCE if before is None else before.name,)

    @property
    def epoch(self) -> int:
        """The epoch that runs next."""
        return 0 if self._query is None else self._query.committed_epoch + 1

    def run(self, rows: pa.Table | Mapping[str, pa.Table]) -> pa.Table:
        """Run one epoch; give what the last operator emitted.

        Args:
            rows: The epoch's rows; by name of the source where there are several.
        """
        tables: dict[str, pa.Table] = dict(rows) if isinstance(rows, dict) else {SOURCE: rows}
        query = self._query or self._bind({name: table.schema for name, table in tables.items()})
        query.runner.cluster.silent = self._silent
        epoch = self.epoch
        try:
            emitted = query.run(_Rows(tables, self.stages, self._batch_rows))
        except OperatorError as error:
            # A test wants to see what its operator raised.
            raise error.__cause__ or error from None
        for name, ledger in self._ledgers().items():
            used = max(status.feedback_epoch for status in ledger.newest())
            if used >= 0:
                self.feedback_used.append((epoch, name, used))
        last = list(self.stages.values())[-1]
        batches = [batch for slot in emitted[last.name] for batch in slot]
        return pa.Table.from_batches(batches, last.output)

    def run_all(self, epochs: Sequence[pa.Table]) -> list[pa.Table]:
        """Run several epochs; give what the last operator emitted in each."""
        return [self.run(rows) for rows in epochs]

    def lose(self, operator: str, slot: int) -> None:
        """Lose the resident state of one slot, between two epochs."""
        lost = self.stages[operator].slots[slot]
        if self._query is not None:
            self._query.lose(operator, lost.number)

    def lose_all(self) -> None:
        """Lose all slots' memory at once, and the feedback that was on its way."""
        if self._query is not None and self._feedback is not None:
            self._feedback.lose()
            for slot in self._query.slots():
                self._query.lose(*slot)

    def silence(self, slots: Collection[tuple[str, int]]) -> None:
        """From now on these slots, and no others, take nothing in and give nothing out.

        So it is with slots that are lost while the others go on (PPA 2016 §V-B). Their state is lost.

        Args:
            slots: Operator and number of each.
        """
        self._silent = frozenset(SlotId(operator, Slot(slot)) for operator, slot in slots)

    def slots(self) -> list[dict[str, Any]]:
        """Rows in and out of each slot in the newest epoch, as ``Query.slots`` tells them."""
        return [
            {
                "operator": name,
                "slot": status.slot,
                "rows_in": status.rows_in,
                "rows_out": status.rows_out,
            }
            for name, ledger in self._ledgers().items()
            for status in ledger.newest()
            if SlotId(name, status.slot) not in self._silent
        ]

    def bound(self, operator: str | None = None) -> Bound:
        """How wrong the answer can be, as a query on Spark would tell it.

        Args:
            operator: One operator of several; without it the one that can be most wrong.
        """
        if self.amplification is None:
            raise BadValueError(
                "Nothing can be said of the answer yet.", do="Run an epoch before you ask."
            )
        shared = all(stage.policy is None for stage in self.stages.values())
        glimpses = [ledger.glimpse() for ledger in self._ledgers().values()]
        return bound_of(glimpses, Spread(self.amplification, shared), operator)

    def backups(self) -> int:
        """Backups written so far, by all slots."""
        return sum(ledger.totals["backups"] for ledger in self._ledgers().values())

    def backup_bytes(self) -> int:
        """Bytes of all backups so far."""
        return sum(ledger.totals["backup_bytes"] for ledger in self._ledgers().values())

    def _ledgers(self) -> Mapping[str, Ledger]:
        return {} if self._query is None else self._query.runner.books.ledgers

    def _bind(self, schemas: dict[str, pa.Schema]) -> LocalRun:
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
                window=(stage.policy or self._policy).window,
                told=stage.amplification,
                senders={name: True for name in stage.inputs if name in self.stages},
                feedback=[s.name for s in self.stages.values() if s.feedback_to == stage.name],
                slots=stage.parallelism,
                key=stage.key,
                specs=specs[stage.name],
            )
        self.amplification = spread = amplification_between(linked)
        operators = [
            self._operator(stage, specs[stage.name], spread) for stage in self.stages.values()
        ]
        self._feedback = LateFeedback(lambda: self.epoch, self._staleness)
        feedback = self._feedback
        self._query = query = LocalRun(
            operators,
            {stage.name: stage.operator for stage in self.stages.values()},
            QuerySettings(graph=self._graph()),
            feedback=lambda: feedback,
        )
        for one in operators:
            self.stages[one.name].slots = [
                LocalSlot(query, one.name, number, one.placement) for number in each_slot(one.slots)
            ]
        return query

    def _operator(
        self, stage: Stage, specs: list[dict[str, Any]], spread: Amplification
    ) -> QueryOperator:
        assert stage.output is not None
        errors = errors_of_copies(stage.operator, stage.key, specs)
        place = Placement(copies=stage.parallelism, errors_of_copies=errors)
        # A policy of its own is a budget of its own.
        place = spread.placed(stage.name, place, shared=stage.policy is None)
        policy = stage.policy or self._policy
        check_durable(stage.name, specs, policy.threshold(policy.initial(), place))
        return QueryOperator(
            name=stage.name,
            slots=stage.parallelism,
            blob=b"",
            policy=policy,
            placement=place,
            window=policy.window,
            output_arrow=stage.output,
            feedback_arrow=stage.feedback,
            feedback_to=stage.feedback_to,
            keyed=bool(stage.key),
            repeats=stage.operator.repeats,
        )

    def _graph(self) -> Graph:
        """Who sends to whom."""
        edges = [
            Edge(name, stage.name)
            for stage in self.stages.values()
            for name in stage.inputs
            if name in self.stages
        ]
        back = [
            Edge(stage.name, stage.feedback_to, feedback=True)
            for stage in self.stages.values()
            if stage.feedback_to is not None
        ]
        nodes = (Node(stage.name, stage.parallelism) for stage in self.stages.values())
        return Graph(tuple(nodes), (*edges, *back))


class _Rows:
    """The rows of one epoch; see :class:`tether.local.cluster.Feed`."""

    def __init__(
        self, tables: Mapping[str, pa.Table], stages: Mapping[str, Stage], batch_rows: int
    ) -> None:
        self._tables, self._stages, self._batch_rows = tables, stages, batch_rows

    def by_slot(
        self, operator: QueryOperator, emitted: Mapping[str, list[list[pa.RecordBatch]]]
    ) -> list[list[pa.RecordBatch]]:
        """The rows of each of an operator's slots."""
        stage = self._stages[operator.name]
        taken = [self._table(name, emitted) for name in stage.inputs]
        rows = pa.concat_tables(taken) if len(taken) > 1 else taken[0]
        home = slot_of(rows, stage.key, stage.parallelism)
        return [self._batches(rows, home, slot) for slot in each_slot(stage.parallelism)]

    def _table(self, name: str, emitted: Mapping[str, list[list[pa.RecordBatch]]]) -> pa.Table:
        if name in self._tables:
            return self._tables[name]
        batches = [batch for slot in emitted[name] for batch in slot]
        return pa.Table.from_batches(batches, self._stages[name].output)

    def _batches(self, rows: pa.Table, home: NDArray[np.int64], slot: int) -> list[pa.RecordBatch]:
        mine = (
            rows if rows.num_rows and (home == slot).all() else rows.filter(pa.array(home == slot))
        )
        batches = mine.combine_chunks().to_batches(max_chunksize=self._batch_rows)
        return [batch for batch in batches if batch.num_rows]


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
