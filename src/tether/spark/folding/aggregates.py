"""An operator's aggregates (``Operator.combine``), as far as Arrow folds them as Spark would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tether.sources.folding.fold import Fold, FoldColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tether.spark.graph.flow import OperatorNode, SourceNode
    from tether.spark.graph.prepared import PreparedOperator, PreparedQuery

_HOW = {"Sum": "sum", "Count": "count", "Min": "min", "Max": "max"}
_KINDS = {"bigint": "int64", "double": "double"}


def only_child(query: PreparedQuery, source: SourceNode) -> OperatorNode | None:
    """The operator with a key that takes a source's rows as they are, if nobody else does."""
    if source in query.flow.ends:
        return None
    children = [node for node in query.flow.order if source in node.parents]
    if len(children) != 1 or children[0] not in query.operators:
        return None
    node = query.operators[children[0]].node
    return None if node.event_time is not None or not node.key else node


def fold_of(rows: DataFrame, prepared: PreparedOperator) -> Fold | None:
    """An operator's aggregates, if they are of the kinds that can be folded in steps."""
    if prepared.combine is None:
        return None
    key = [F.col(f"`{name}`") for name in prepared.node.key]
    plan = rows.groupBy(*key).agg(*prepared.combine)._jdf.queryExecution().analyzed()
    found = plan.aggregateExpressions()
    columns = [_column(found.apply(at)) for at in range(len(key), found.size())]
    if not columns or any(column is None for column in columns):
        return None
    return Fold(
        key=tuple(prepared.node.key), columns=tuple(one for one in columns if one is not None)
    )


def _column(expression: Any) -> FoldColumn | None:
    """``sum(column) AS name`` and its like; None for anything else."""
    if _kind(expression) != "Alias" or _kind(expression.child()) != "AggregateExpression":
        return None
    aggregate = expression.child()
    function = aggregate.aggregateFunction()
    how, inputs = _HOW.get(_kind(function)), function.children()
    if how is None or aggregate.isDistinct() or not aggregate.filter().isEmpty():
        return None
    if inputs.size() != 1:
        return None
    value, kind, whole = inputs.apply(0), "", False
    if how == "count" and _kind(value) == "Literal" and value.value() is not None:
        return FoldColumn(name=expression.name(), how="count")
    if _kind(value) == "CaseWhen" and (inside := _whole(value)) is not None:
        value, whole = inside, True
    if _kind(value) == "Cast":
        kind = _KINDS.get(value.dataType().simpleString(), "no")
        value = value.child()
    if _kind(value) != "AttributeReference" or kind == "no":
        return None
    return FoldColumn(
        name=expression.name(),
        how=how,  # type: ignore[arg-type]
        column=value.name(),
        kind=kind,
        whole=whole,
    )


def _whole(case: Any) -> Any:
    """``x`` of ``CASE WHEN x >= 0 THEN x ELSE raise_error(…)``; None of any other."""
    branches, otherwise = case.branches(), case.elseValue()
    if branches.size() != 1 or otherwise.isEmpty():
        return None
    condition, value = branches.apply(0)._1(), branches.apply(0)._2()
    wrong = otherwise.get()
    while _kind(wrong) == "Cast":  # raise_error fits every type, because it never gives a value
        wrong = wrong.child()
    if _kind(condition) != "GreaterThanOrEqual" or _kind(wrong) != "RaiseError":
        return None
    least = condition.right()
    while _kind(least) == "Cast":
        least = least.child()
    zero = _kind(least) == "Literal" and str(least.value()) == "0"
    return value if zero and condition.left().semanticEquals(value) else None


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
