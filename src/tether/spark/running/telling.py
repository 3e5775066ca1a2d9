"""The feed of a query on Spark: what of the query it must know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.observe.facts import CopyNow
from tether.observe.operator_feed import OperatorFeed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.engine.query.copies import CopyStanding
    from tether.engine.query.runner import Runner
    from tether.policies.policy import Policy
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.running.stores import OpenStore


def feed_of(query: PreparedQuery, opened: OpenStore | None, run: str) -> OperatorFeed:
    """The feed of one run of a query, kept beside its backups where it has any."""
    operators, flow = query.flow.operators, query.flow
    return OperatorFeed(
        policies_of(query),
        query.amplification,
        shared=query.shares_budget,
        entries=frozenset(node.name for node in operators if not flow.senders(node)),
        ends=frozenset(node.name for node in operators if not flow.children(node)),
        backup=None if opened is None else (opened.address.url, opened.address.storage_options),
        run=run,
    )


def policies_of(query: PreparedQuery) -> dict[str, tuple[Policy, int]]:
    """Policy and number of slots of each operator."""
    return {node.name: (query.operators[node].policy, node.slots) for node in query.flow.operators}


def standing_of(runners: Iterable[Runner[Any]]) -> tuple[CopyStanding, ...]:
    """Every seat of slots that have copies."""
    found = [one.copies.standing() for one in runners if one.copies is not None]
    return tuple(seat for each in found for seat in each)


def told_copies(standing: Iterable[CopyStanding]) -> tuple[CopyNow, ...]:
    """The same, as a feed has it."""
    return tuple(CopyNow(**seat._asdict()) for seat in standing)
