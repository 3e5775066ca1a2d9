"""A query after all checks that are possible before it starts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from tether.core.errors import BadValueError, QueryRefusedError
from tether.core.placement import Placement
from tether.core.windows import Hopping
from tether.declared import Linked, amplification_between, check_durable, counted
from tether.engine.operators import QueryOperator, QuerySettings
from tether.policies.explain import explain, explain_spread
from tether.spark.graph.copying import copy_plan
from tether.spark.graph.exactness import row_by_row, same_again
from tether.spark.graph.flow import Flow, OperatorNode, evaluate, graph_of
from tether.spark.graph.placement import placement_of
from tether.spark.session import is_narrow
from tether.state.slot import SlotState
from tether.state.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tether.backup.opening import StoreAddress
    from tether.chaos.faults import Fault
    from tether.core.amplification import Amplification
    from tether.core.windows import Window
    from tether.engine.messages import ArenaScope
    from tether.engine.operators import CopyPlan
    from tether.operator import Operator
    from tether.policies.policy import Policy
    from tether.spark.folding.folding import Folding
    from tether.spark.graph.consistency import Consistency
    from tether.spark.graph.flow import Node, SourceNode
    from tether.spark.sinks import Sink


@dataclass(frozen=True, kw_only=True)
class PreparedOperator(QueryOperator):
    """One operator of a query on Spark."""

    node: OperatorNode
    operator: Operator
    output_spark: StructType
    combine: list[Column] | None
    """Aggregates for Spark to fold an epoch's rows with."""
    narrow: bool
    """Whether the rows that reach its slots are a few numbers each."""
    same_again: bool
    """Whether what comes before it makes the same rows when it is run again."""
    folding: Folding | str | None = None
    """How its rows are folded where they are read; or why they are not, in a few words."""
    unordered: tuple[str, ...] = ()
    """Columns that Spark cannot sort by, where the order of rows may matter."""

    def table_schema(self, name: str) -> pa.Schema:
        """Schema in which a table of the state is shown: its key columns, then its values.

        Spark has no unsigned bytes, so flags are shown as 16-bit numbers.

        Raises:
            BadValueError: The operator has no such table.
        """
        if name not in self.state_specs or self.state_specs[name]["kind"] != Table.kind:
            raise BadValueError(
                f"The operator {self.name!r} has no table {name!r}.",
                why=f"Its states are {', '.join(self.state_specs) or 'none'}.",
            )
        table = declared_state(self.operator)[name]
        assert isinstance(table, Table)
        shown = [
            field.with_type(pa.int16()) if field.type == pa.uint8() else field
            for field in table.schema
        ]
        return pa.schema(shown)


@dataclass(frozen=True, kw_only=True)
class PreparedQuery:
    """All operators of a query, its sinks, and where state and backups are kept."""

    flow: Flow
    operators: dict[OperatorNode, PreparedOperator]
    amplification: Amplification
    """How errors spread from operator to operator."""
    shares_budget: bool
    """Whether one policy's budget is divided among all operators; else each has its own."""
    sinks: tuple[tuple[Node, Sink], ...]
    consistency: Consistency
    store_address: StoreAddress | None = None
    arena_scope: ArenaScope = "node"
    arena_dir: str | None = None
    allow_changed: tuple[str, ...] = ()
    accept_damage: bool = False
    faults: tuple[Fault, ...] = ()
    readable_epochs: int = 100
    """How many epochs back Spark remembers what their rows were."""
    reading: Mapping[SourceNode, DataFrame] = field(default_factory=dict)
    """For some sources, the DataFrame that is read in their place: the same rows, folded."""

    @property
    def settings(self) -> QuerySettings:
        """What the engine must know of the whole query."""
        return QuerySettings(
            graph=graph_of(self.flow),
            arena_scope=self.arena_scope,
            arena_dir=self.arena_dir,
            allow_changed=self.allow_changed,
            accept_damage=self.accept_damage,
            faults=self.faults,
            readable_epochs=self.readable_epochs,
            copies=self.copies,
            staleness=self.consistency.staleness,
        )

    @cached_property
    def copies(self) -> CopyPlan | None:
        """The plan of copies; None where no slot gets one."""
        return copy_plan(self.flow, [one.policy for one in self.operators.values()])

    @property
    def keeps_backups(self) -> bool:
        """Whether any operator's state is ever backed up."""
        return any(prepared.policy.keeps_backups for prepared in self.operators.values())

    def named(self, operator: str | None) -> PreparedOperator:
        """An operator by name; the only one where no name is given.

        Raises:
            BadValueError: There is none, or there are several and none was named.
        """
        found = [p for p in self.operators.values() if operator in (None, p.name)]
        if len(found) != 1:
            raise BadValueError(
                f"The query has no operator {operator!r}."
                if operator
                else "The query has several operators, and none was named.",
                why=f"Its operators are {', '.join(p.name for p in self.operators.values())}.",
                do="Name one of them.",
            )
        return found[0]


def declared_state(operator: Operator) -> SlotState:
    """Run ``setup`` once on throw-away memory: it tells the schema, and whether it works at all."""
    state = SlotState.heap()
    operator.setup(state)
    return state


def spark_and_arrow(declared: str | StructType) -> tuple[StructType, pa.Schema]:
    """A declared schema for Spark and for Arrow."""
    spark_schema = declared if isinstance(declared, StructType) else StructType.fromDDL(declared)
    return spark_schema, to_arrow_schema(spark_schema, timezone="UTC")


def check_key(key: list[str], schema: StructType) -> None:
    """Refuse keys that are not columns, or that Spark would not group by value.

    Raises:
        BadValueError: Says which column, and what the input has.
    """
    for name in key:
        if name not in schema.names:
            raise BadValueError(
                f"The key column {name!r} is not in the input.",
                why=f"The input has the columns {schema.names}.",
                do="Name columns of the DataFrame given to tether.stream().",
            )
        kind = schema[name].dataType.simpleString()
        if kind.startswith(("map", "variant")) or "collate" in kind:
            raise BadValueError(
                f"The key column {name!r} has type {kind}.",
                why="Values of this type that Spark calls equal need not be equal byte by byte.",
                do="Make a key of plain columns first, for example with to_json() or lower().",
            )


def check_event_time(node: OperatorNode, window: Window | None, schema: StructType) -> None:
    """Refuse windows that the operator or its input is not made for.

    Raises:
        BadValueError: Says which column, and what the input has.
    """
    name = node.event_time
    if isinstance(window, Hopping) and window.every is not None and not node.operator.overlapping:
        raise BadValueError(
            f"The windows of {node.name!r} overlap, and it may not know it.",
            why="An operator that clears its state at the end of a window loses rows of the next ones.",
            do="Keep what later windows need in on_window_end, and set overlapping = True.",
        )
    if name is None:
        if window is not None and window.by == "seconds":
            raise BadValueError(
                f"The window {window} of {node.name!r} goes by event time, but none was named.",
                do="Pass event_time='column' to apply(), or a window by='epochs' or by='items'.",
            )
        return
    kinds = (TimestampType, TimestampNTZType)
    if name not in schema.names or not isinstance(schema[name].dataType, kinds):
        raise BadValueError(
            f"The event time {name!r} of {node.name!r} is not a column of timestamps.",
            why=f"The input is {schema.simpleString()}.",
            do="Name a timestamp column; numbers become one with timestamp_seconds().",
        )


def prepare(
    ends: Mapping[Node, Sink],
    *,
    policies: Policy | Mapping[str, Policy],
    consistency: Consistency,
    store_address: StoreAddress | None = None,
    arena_scope: ArenaScope = "node",
    arena_dir: str | None = None,
    allow_changed: tuple[str, ...] = (),
    accept_damage: bool = False,
    faults: tuple[Fault, ...] = (),
    readable_epochs: int = 100,
) -> PreparedQuery:
    """Check everything that can be checked before an epoch runs."""
    flow = Flow(tuple(ends))
    chosen = _policies(flow, policies)
    operators: dict[OperatorNode, PreparedOperator] = {}

    def describe(node: OperatorNode, rows: DataFrame) -> DataFrame:
        operators[node] = _prepare_operator(node, rows, chosen[node.name])
        return rows.sparkSession.createDataFrame([], operators[node].output_spark)

    # Only the schemas are needed here, so operators give no rows.
    evaluate(flow.order, {source: source.rows for source in flow.sources}, describe)
    # A policy of its own has a budget of its own; one that is shared is divided.
    shared = not isinstance(policies, Mapping)
    amplification, operators = placed(flow, operators, shared=shared)
    return PreparedQuery(
        flow=flow,
        operators=operators,
        amplification=amplification,
        shares_budget=shared,
        sinks=tuple(ends.items()),
        consistency=consistency,
        store_address=store_address,
        arena_scope=arena_scope,
        arena_dir=arena_dir,
        allow_changed=allow_changed,
        accept_damage=accept_damage,
        faults=faults,
        readable_epochs=readable_epochs,
    )


def placed(
    flow: Flow, operators: Mapping[OperatorNode, PreparedOperator], *, shared: bool
) -> tuple[Amplification, dict[OperatorNode, PreparedOperator]]:
    """How errors spread in a graph, and its operators with their places in it.

    Args:
        flow: The graph.
        operators: Its operators.
        shared: Whether they share one budget; else each has its own.
    """
    amplification, found = _amplification(flow, operators), {}
    for node, one in operators.items():
        specs = one.state_specs.values()
        place = placement_of(flow, node, one.operator, specs, amplification, shared=shared)
        found[node] = replace(one, placement=place)
        check_durable(one.name, specs, one.policy.threshold(one.policy.initial(), place))
    return amplification, found


def explain_query(query: PreparedQuery) -> list[str]:
    """What the policies of a query will do, operator by operator, and how errors spread."""
    several = len(query.operators) > 1
    lines = []
    for one in query.operators.values():
        indented = (f"  {line}" if several else line for line in explain(one.policy, one.placement))
        lines += [f"{one.name}:"] * several + list(indented)
        lines += ["  " * several + told for told in _told_folding(one)]
    return lines + list(explain_spread(query.amplification))


def _told_folding(one: PreparedOperator) -> list[str]:
    if one.folding is None:
        return []
    if isinstance(one.folding, str):
        return [f"Spark reads and folds its rows: {one.folding}."]
    return [f"Its rows are folded {one.folding.told}."]


def _policies(flow: Flow, policies: Policy | Mapping[str, Policy]) -> dict[str, Policy]:
    names = [node.name for node in flow.operators]
    if not isinstance(policies, Mapping):
        return dict.fromkeys(names, policies)
    if set(policies) != set(names):
        raise BadValueError(
            f"tolerance names the operators {sorted(policies)}.",
            why=f"The query's operators are {sorted(names)}.",
            do="Give one policy for the whole query, or one for each of its operators.",
        )
    return dict(policies)


def _amplification(flow: Flow, operators: Mapping[OperatorNode, PreparedOperator]) -> Amplification:
    return amplification_between(
        {
            node.name: Linked(
                operator=one.operator,
                losing=bool(counted(one.state_specs.values())),
                window=one.window,
                told=node.amplification,
                senders=flow.senders(node),
                feedback=[other.name for other in operators if other.feedback_to is node],
                slots=node.slots,
                key=node.key,
                specs=list(one.state_specs.values()),
            )
            for node, one in operators.items()
        }
    )


def _prepare_operator(node: OperatorNode, rows: DataFrame, policy: Policy) -> PreparedOperator:
    check_key(node.key, rows.schema)
    operator = copy.copy(node.operator)  # one instance may serve several queries
    operator.bind(rows.schema, node.key)
    window = _window(node, policy)
    check_event_time(node, window, rows.schema)
    blob = CloudPickleSerializer().dumps(operator)  # before it holds a state of its own
    state, combine = declared_state(operator), operator.combine()
    again = same_again(rows)
    output_spark, output_arrow = spark_and_arrow(operator.output)
    if node.feedback_to is not None and operator.feedback is None:
        raise BadValueError(
            f"{node.name!r} is to send feedback, but says nothing of its shape.",
            do="Name the columns in the operator's feedback attribute, as for output.",
        )
    return PreparedOperator(
        name=node.name,
        slots=node.slots,
        node=node,
        operator=operator,
        feedback_to=node.feedback_to.name if node.feedback_to is not None else None,
        keyed=bool(node.key),
        event_time=node.event_time,
        drops_event_time=combine is not None and node.event_time not in node.key,
        lateness=node.lateness,
        program={"version": operator.version, "parameters": dict(operator.parameters())},
        blob=blob,
        policy=policy,
        placement=Placement(copies=node.slots),  # until all operators are known
        window=window,
        output_spark=output_spark,
        output_arrow=output_arrow,
        feedback_arrow=spark_and_arrow(operator.feedback)[1] if operator.feedback else None,
        state_specs=state.specs(),
        key_types={name: rows.schema[name].dataType.simpleString() for name in node.key},
        combine=combine,
        narrow=is_narrow(_arriving(node, combine, rows)),
        repeats=operator.repeats and again,
        alike=dict(operator.alike),
        merges=operator.merges and again and row_by_row(rows),
        same_again=again,
        unordered=() if operator.repeats else _unordered(_arriving(node, combine, rows)),
    )


def _unordered(schema: StructType) -> tuple[str, ...]:
    kinds = {column.name: column.dataType.simpleString() for column in schema.fields}
    return tuple(name for name, kind in kinds.items() if "map<" in kind or "variant" in kind)


def _arriving(node: OperatorNode, combine: list[Column] | None, rows: DataFrame) -> StructType:
    """The schema of rows at the slots, without the column that names the slot."""
    return (rows if combine is None else rows.groupBy(*node.key).agg(*combine)).schema


def _window(node: OperatorNode, policy: Policy) -> Window | None:
    of_policy = policy.window
    if of_policy is not None and node.window is not None and of_policy != node.window:
        raise QueryRefusedError(
            f"The operator {node.name!r} has the window {node.window}, its policy {of_policy}.",
            why="The bound is given for the window of the answer; there can be only one.",
            do="Give the same window to both, or to one of them.",
        )
    return node.window or of_policy
