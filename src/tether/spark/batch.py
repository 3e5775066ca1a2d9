"""The batch form of a query: the same operator over a static DataFrame, as one epoch on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.serializers import CloudPickleSerializer

from tether.output import Output
from tether.spark.plan import SLOT, EpochPlan
from tether.state.slot import SlotState

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tether.operator import Operator
    from tether.spark.prepared import Prepared


class BatchTask:
    """One slot's rows through a new operator with empty state, kept in the task's own memory."""

    def __init__(self, operator: bytes, output_schema: pa.Schema) -> None:
        self._operator, self._output_schema = operator, output_schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process all rows, then end the epoch."""
        operator: Operator = CloudPickleSerializer().loads(self._operator)
        state = SlotState.heap()
        operator.setup(state)
        state.begin(0)
        out = Output(self._output_schema)
        for batch in batches:
            if batch.num_rows:
                operator.process(batch.drop_columns([SLOT]), out)
                yield from out.drain()
        operator.on_epoch_end(out)
        yield from out.drain()


def batch_answer(prepared: Prepared) -> DataFrame:
    """The operator's output over all rows of a static input, lazily."""
    plan = EpochPlan(prepared.key, prepared.slots, prepared.combine(), anchor=None)
    # A static input's session is the user's own: its settings are not ours to change, so the
    # shuffle to the slots is asked for by itself, which no setting can merge or leave out.
    plan.unfuse()
    task = BatchTask(prepared.operator_blob, prepared.output_arrow)
    return plan.rows_by_slot(prepared.input).mapInArrow(task, prepared.output_spark)
