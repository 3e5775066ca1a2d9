"""How much flows through each slot, from what slots report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def measured_rates(reports: Iterable[Mapping[str, Any]]) -> dict[str, tuple[float, ...]]:
    """Rows out of each slot over all the reports; plans need nothing but their proportions.

    Of an operator that has sent nothing, as the last one of a query may, its rows in: so its slots still
    count by the part of the stream that they take.

    Args:
        reports: Of any number of epochs, one for each slot and epoch: ``operator``, ``slot``,
            ``rows_in`` and ``rows_out``, as in ``query.slots()`` and in the progress reports.

    Raises:
        BadValueError: There are none.

    Example:
        >>> reports = [
        ...     {"operator": "parse", "slot": 0, "rows_in": 9, "rows_out": 6},
        ...     {"operator": "parse", "slot": 1, "rows_in": 1, "rows_out": 2},
        ...     {"operator": "store", "slot": 0, "rows_in": 8, "rows_out": 0},
        ... ]
        >>> measured_rates(reports)
        {'parse': (6.0, 2.0), 'store': (8.0,)}
    """
    sums: dict[str, dict[int, list[int]]] = {}
    for report in reports:
        slots = sums.setdefault(report["operator"], {})
        both = slots.setdefault(report["slot"], [0, 0])
        both[0] += report["rows_in"]
        both[1] += report["rows_out"]
    if not sums:
        raise BadValueError(
            "No slot has reported its rows yet.",
            why="The query has not finished an epoch.",
            do="Wait for one, for example with processAllAvailable(), or give the rates.",
        )
    rates = {}
    for operator, slots in sums.items():
        each = [slots.get(slot, [0, 0]) for slot in range(max(slots) + 1)]
        sends = any(out for _, out in each)
        rates[operator] = tuple(float(both[sends]) for both in each)
    return rates
