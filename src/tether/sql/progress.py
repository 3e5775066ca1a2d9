"""How wrong the state of a running query can be, from what its stores report to Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.errors import BadValueError
from tether.sql.settings import run_is_durable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.streaming import StreamingQuery

INFINITE = 1 << 48
"""What the stores report where an amount has no bound; Spark's metrics are whole numbers."""


class StateBound(msgspec.Struct, frozen=True, kw_only=True):
    """How wrong the state of one stateful operator can be, in units of its divergence.

    Amounts are whole numbers, rounded up in each partition: Spark's metrics know no others.

    Example:
        >>> StateBound(operator="stateStoreSave", spent=3, at_risk=4, threshold=10).worst_now
        7
    """

    operator: str
    spent: float
    """What all restores so far can have lost."""
    at_risk: float
    """What would be lost in addition if every partition died now; nothing after an end in good order."""
    threshold: float
    """What ``at_risk`` is kept below."""
    failures: int = 0
    """Restores that lost something, over all partitions."""
    extra: float = 0
    """Part of ``spent`` that unreadable backups have caused; beyond what was promised."""

    @property
    def worst_now(self) -> float:
        """The most that the state would be wrong by if every partition died now."""
        return self.spent + self.at_risk


def bound(query: StreamingQuery) -> tuple[StateBound, ...]:
    """The bound of a query, running or ended, one entry for each stateful operator.

    Raises:
        BadValueError: The query has no state, has not finished a batch, or uses another store.
    """
    progress: Any = query.lastProgress
    operators = progress["stateOperators"] if progress else []
    found = tuple(bounds_of(operators))
    if not found:
        raise BadValueError(
            "There is no bound to tell.",
            why="The query has finished no batch yet."
            if not progress
            else "None of its operators keeps its state in Tether's store.",
            do="Ask again after a batch; start the query under tether.sql.bounded(...).",
        )
    if not query.isActive and run_is_durable(str(query.runId)):
        return tuple(msgspec.structs.replace(one, at_risk=0.0) for one in found)
    return found


def bounds_of(operators: Iterable[Any]) -> Iterable[StateBound]:
    """From the ``stateOperators`` of a query's progress.

    Example:
        >>> metrics = {"tetherBound": 5, "tetherDivergence": 2, "tetherThreshold": 9}
        >>> [one] = bounds_of([{"operatorName": "dedupe", "customMetrics": metrics}])
        >>> one.spent, one.at_risk
        (5.0, 2.0)
    """
    for operator in operators:
        metrics: Mapping[str, int] = operator["customMetrics"]
        if "tetherBound" in metrics:
            yield StateBound(
                operator=operator["operatorName"],
                spent=_amount(metrics["tetherBound"]),
                at_risk=_amount(metrics["tetherDivergence"]),
                threshold=_amount(metrics["tetherThreshold"]),
                failures=metrics.get("tetherFailures", 0),
                extra=_amount(metrics.get("tetherExtra", 0)),
            )


def _amount(reported: int) -> float:
    return float("inf") if reported >= INFINITE else float(reported)
