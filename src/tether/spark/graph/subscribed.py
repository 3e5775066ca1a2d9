"""What a query must be like to answer although an input is missing, and to be corrected later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import QueryRefusedError
from tether.sources.leaves import leaves_of
from tether.sources.sunion.looking import Spec
from tether.sources.sunion.source import FORMAT, SPEC
from tether.spark.graph.exactness import available_of

if TYPE_CHECKING:
    from tether.spark.graph.flow import SourceNode
    from tether.spark.graph.prepared import PreparedQuery


def check_subscription(query: PreparedQuery) -> None:
    """Refuse a query under ``Available`` that could not keep its promise, and one that lacks it.

    Raises:
        QueryRefusedError: Says why, and what to do.
    """
    policy = available_of(query)
    specs = [spec for source in query.flow.sources for spec in _subscriptions(source)]
    if policy is None:
        if any(spec.operators for spec in specs):
            raise QueryRefusedError(
                "The query reads a subscription of two kinds of rows, and its policy knows but one.",
                why="tether.subscribe was given a tolerance.",
                do="Start the query with the same tolerance; or leave it out of subscribe().",
            )
        return
    why = ""
    if any(one.policy.availability != policy for one in query.operators.values()):
        why = "Only some operators have it, or they have different ones."
    elif len(query.flow.sources) != 1 or len(specs) != 1:
        why = "The query must read one tether.subscribe, and nothing else."
    elif not specs[0].operators or specs[0].handling != msgspec.structs.replace(
        policy.handling, most=specs[0].handling.most
    ):
        why = "tether.subscribe was given another one, or none."
    elif any(one.feedback_to is not None for one in query.operators.values()):
        why = "Feedback that tentative rows lead to could not be taken back."
    if why:
        raise QueryRefusedError(
            "The policy available cannot be used here.",
            why=why,
            do="Give one tether.Available to both: subscribe(..., tolerance=policy) and "
            "start(..., tolerance=policy).",
        )


def _subscriptions(source: SourceNode) -> list[Spec]:
    own = getattr(source.rows, "tether_subscription", None)
    if own is not None:  # a session that brings its own sources; see tether.testing.inprocess
        return [own]
    return [
        msgspec.json.decode(options[SPEC], type=Spec) for options in leaves_of(source.rows, FORMAT)
    ]
