"""Which policies promise that a loss costs nothing, and what a query must be like for them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from tether.core.errors import QueryRefusedError
from tether.protocols.rewind import check_source
from tether.protocols.snapshots import WAIT_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tether.policies.policy import Availability, Policy, SnapshotSchedule
    from tether.spark.graph.flow import SourceNode
    from tether.spark.graph.prepared import PreparedQuery

_GIVES_ONCE = re.compile(r"^[\s:+|-]*socket\b", re.MULTILINE)
"""Name of the leaf, in Spark's plans, of the one source that gives its rows only once."""

_BY_CLOCK = re.compile(r"\b(current_(timestamp|date|time)|localtimestamp|now)\b", re.IGNORECASE)
"""Functions that Spark takes for deterministic, but that give another value in another run."""


FEWEST_EPOCHS = 2 * WAIT_EPOCHS + 2
"""Least number of epochs that Spark must remember, so that a failed snapshot is tried again in time."""


def replays(source: SourceNode) -> bool:
    """Whether the source gives the rows of an epoch again when asked for them again."""
    if source.replays is not None:
        return source.replays
    plan = source.rows._jdf.queryExecution().analyzed().toString()
    return _GIVES_ONCE.search(plan) is None


def same_again(rows: DataFrame) -> bool:
    """Whether a plan makes the same of the same rows, as far as Spark can tell."""
    plan = rows._jdf.queryExecution().analyzed()
    return bool(plan.deterministic()) and _BY_CLOCK.search(plan.toString()) is None


_BY_ROWS = ("SubqueryAlias", "Project", "Filter", "Generate", "Union")
"""Nodes of Spark's plans whose result for a row does not depend on other rows."""


def row_by_row(rows: DataFrame) -> bool:
    """Whether each row of a plan depends on one row of a source, and on no others.

    Only then are the rows of several epochs, taken as one epoch, the rows of each of them.
    """
    return _by_rows(rows._jdf.queryExecution().analyzed())


def _by_rows(node: Any) -> bool:
    below = node.children()
    if below.isEmpty():
        return bool(node.isStreaming())
    known = node.nodeName() in _BY_ROWS
    return known and all(_by_rows(below.apply(number)) for number in range(below.size()))


def snapshots_of(query: PreparedQuery) -> SnapshotSchedule | None:
    """When snapshots of a query begin, if it takes any."""
    schedules = [prepared.policy.snapshots for prepared in query.operators.values()]
    return next((schedule for schedule in schedules if schedule is not None), None)


def available_of(query: PreparedQuery) -> Availability | None:
    """How a query answers although an input is missing, if it does."""
    found = [prepared.policy.availability for prepared in query.operators.values()]
    return next((each for each in found if each is not None), None)


def heal_of(query: PreparedQuery) -> SnapshotSchedule | None:
    """How often a query saves exact states, if losses under its policy are healed."""
    heals = [prepared.policy.heal for prepared in query.operators.values()]
    return next((heal for heal in heals if heal is not None), None)


def heals_by_itself(query: PreparedQuery) -> bool:
    """Whether losses are healed at once, or when the user asks for it."""
    return all(prepared.policy.heals_by_itself for prepared in query.operators.values())


def _check_heal(query: PreparedQuery, heal: SnapshotSchedule, *, again: bool) -> None:
    """Refuse a query that could not be healed.

    Raises:
        QueryRefusedError: Says why.
    """
    whys = []
    if any(one.policy.heal != heal for one in query.operators.values()):
        whys.append("Only some operators would be: a twin is of the whole query.")
    if not again:
        whys.append("A source of the query cannot be read again.")
    if any(one.feedback_to is not None for one in query.operators.values()):
        whys.append("Feedback in flight is not part of an exact state under approximate.")
    if any(one.keeps_clock for one in query.operators.values()):
        whys.append("Windows by event time end by a clock that is not part of an exact state.")
    if query.consistency.splits:
        whys.append(f"Under {query.consistency.name} operators are at different epochs.")
    if heal.interval + FEWEST_EPOCHS > query.readable_epochs:
        whys.append(f"Spark keeps the offsets of {query.readable_epochs} epochs only.")
    if whys:
        raise QueryRefusedError(
            "Losses of this query cannot be healed.",
            why=whys[0],
            do="Leave heal out, or mend that.",
        )


def keeps_rows(query: PreparedQuery) -> bool:
    """Whether the query must log what its sources give: they give it only once, and L is a promise.

    Otherwise an epoch that is interrupted would lose all its rows. Every policy that keeps backups,
    approximate too, promises that at most L items are lost.
    """
    policies = [prepared.policy for prepared in query.operators.values()]
    promised = any(p.keeps_backups and math.isfinite(p.budget.max_lost_items) for p in policies)
    return promised and not all(replays(source) for source in query.flow.sources)


def check_exact(query: PreparedQuery) -> None:
    """Refuse a query whose exact policy could not keep its promise.

    Raises:
        QueryRefusedError: Says why, and what to use instead.
    """
    policies = [prepared.policy for prepared in query.operators.values()]
    again = all(replays(source) for source in query.flow.sources)
    for policy in policies:
        check_source(policy, "a source of the query", replays=again)
    recovering = sorted({p.name for p in policies if p.recovery.logs_rows or p.recovery.rewinds})
    if recovering and query.consistency.splits:
        raise QueryRefusedError(
            f"{recovering[0]} cannot run under {query.consistency.name}.",
            why="There the ends of a feedback loop keep no common pace, so no two runs are alike, and "
            "no failure could be undone exactly.",
            do="Leave consistency out, or use mini-batch or approximate.",
        )
    heal = heal_of(query)
    if heal is not None:
        _check_heal(query, heal, again=again)
    snapshots = snapshots_of(query)
    if snapshots is None:
        return
    _check_shared(policies)
    _check_retention(snapshots, query.readable_epochs)


def _check_shared(policies: Sequence[Policy]) -> None:
    barrier = next(policy for policy in policies if policy.snapshots is not None)
    if any(policy != barrier for policy in policies):
        raise QueryRefusedError(
            f"Only some operators of the query have the policy {barrier.name}.",
            why="A snapshot is of all operators, and all go back to it together.",
            do="Give one such policy to the whole query, or use upstream-backup for some of them.",
        )


def readable_epochs(session: SparkSession) -> int:
    """How many epochs back Spark remembers what their rows were."""
    return int(session.conf.get("spark.sql.streaming.minBatchesToRetain", "100") or 100)


def _check_retention(snapshots: SnapshotSchedule, kept: int) -> None:
    """Spark forgets old offsets; those of the newest snapshot must still be there.

    Snapshots begin in time whatever the interval says (``core.snapshots``). An interval that could
    never be kept is refused, and so is a limit that leaves no room for a second try.
    """
    needed = FEWEST_EPOCHS
    if snapshots.by == "epochs":
        needed = max(needed, int(snapshots.interval * min(snapshots.patience, 2)) + 2)
    if needed > kept:
        every = f"{snapshots.interval:g} {snapshots.by}"
        raise QueryRefusedError(
            f"Snapshots every {every} cannot be relied on here.",
            why=f"After a loss the stream is read again from the newest one, but Spark keeps only the "
            f"offsets of {kept} epochs (spark.sql.streaming.minBatchesToRetain).",
            do=f"Set spark.sql.streaming.minBatchesToRetain to {needed} or more"
            + (
                f", or take one at least every {max(1, (kept - 2) // 2)} epochs."
                if kept >= FEWEST_EPOCHS
                else "."
            ),
        )
