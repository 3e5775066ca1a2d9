"""The batch form of a query: the same operators over static DataFrames, as one epoch on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.serializers import CloudPickleSerializer

from tether.engine.slot.hooks import EpochInput, call_hooks
from tether.output import Output
from tether.spark.graph.flow import evaluate
from tether.spark.graph.plan import SLOT, EpochPlan
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tether.operator import Operator
    from tether.spark.graph.flow import Node, OperatorNode
    from tether.spark.graph.prepared import PreparedQuery


class BatchTask:
    """One slot's rows through a new operator with empty state, kept in the task's own memory."""

    def __init__(
        self, operator: bytes, output_schema: pa.Schema, feedback_schema: pa.Schema | None
    ) -> None:
        self._operator, self._output_schema = operator, output_schema
        self._feedback_schema = feedback_schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process all rows, then end the epoch."""
        operator: Operator = CloudPickleSerializer().loads(self._operator)
        state = SlotState.heap()
        operator.setup(state)
        state.begin(0)
        out = Output(self._output_schema, self._feedback_schema)
        rows = (batch.drop_columns([SLOT]) for batch in batches if batch.num_rows)
        yield from call_hooks(operator, EpochInput(rows), out)


def batch_answer(query: PreparedQuery, end: Node) -> DataFrame:
    """The rows of a node over all rows of static inputs, lazily."""

    def operate(node: OperatorNode, rows: DataFrame) -> DataFrame:
        prepared = query.operators[node]
        plan = EpochPlan(node.key, node.slots, prepared.combine, anchor=None)
        # A static input's session is the user's own: its settings are not ours to change, so the
        # shuffle to the slots is asked for by itself, which no setting can merge or leave out.
        plan.unfuse()
        task = BatchTask(prepared.blob, prepared.output_arrow, prepared.feedback_arrow)
        return plan.rows_by_slot(rows).frame.mapInArrow(task, prepared.output_spark)

    sources: dict[Node, DataFrame] = {source: source.rows for source in query.flow.sources}
    return evaluate(query.flow.order, sources, operate)[end]
