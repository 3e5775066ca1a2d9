"""How much flows through each slot, from what slots report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tether.core.graph import Graph


def measured_rates(
    graph: Graph, reports: Iterable[Mapping[str, Any]], *, folding: Collection[str] = ()
) -> dict[str, tuple[float, ...]]:
    """Rows out of each slot over all the reports; plans need nothing but their proportions.

    Of an operator that has sent nothing, as the last one of a query may, its rows in: so its slots still
    count by the part of the stream that they take.

    Args:
        graph: The query's graph.
        reports: Of any number of epochs, one for each slot and epoch: ``operator``, ``slot``,
            ``rows_in`` and ``rows_out``, as in ``query.slots()`` and in the progress reports.
        folding: Operators whose rows out are sums over many rows in, and so do not weigh alike. Their
            slots count by rows in where they read the source, and by what comes in from others, as the
            topology has it, where they do not.

    Raises:
        BadValueError: There are no reports, or an operator is not in the graph.

    Example:
        >>> from tether.core.graph import Edge, Graph, Node
        >>> graph = Graph((Node("parse", 2), Node("store")), (Edge("parse", "store"),))
        >>> reports = [
        ...     {"operator": "parse", "slot": 0, "rows_in": 9, "rows_out": 6},
        ...     {"operator": "parse", "slot": 1, "rows_in": 1, "rows_out": 2},
        ...     {"operator": "store", "slot": 0, "rows_in": 8, "rows_out": 0},
        ... ]
        >>> measured_rates(graph, reports)
        {'parse': (6.0, 2.0), 'store': (8.0,)}
        >>> measured_rates(graph, reports, folding=["parse", "store"])
        {'parse': (9.0, 1.0)}
    """
    slots = {node.name: node.slots for node in graph.nodes}
    fed = {edge.target for edge in graph.edges if not edge.feedback}
    unknown = sorted(set(folding) - set(slots))
    if unknown:
        raise BadValueError(f"The query has no {unknown}.", why=f"Its operators are {list(slots)}.")
    sums = {name: [[0, 0] for _ in range(number)] for name, number in slots.items()}
    reported = False
    for report in reports:
        both = sums[report["operator"]][report["slot"]]
        both[0] += report["rows_in"]
        both[1] += report["rows_out"]
        reported = True
    if not reported:
        raise BadValueError(
            "No slot has reported its rows yet.",
            why="The query has not finished an epoch.",
            do="Wait for one, for example with processAllAvailable(), or give the rates.",
        )
    rates = {}
    for name, each in sums.items():
        if name in folding and name in fed:
            continue
        sends = any(out for _, out in each) and name not in folding
        rates[name] = tuple(float(both[sends]) for both in each)
    return rates
