"""Changes the number of slots while the query runs, as a restart would, between two epochs.

Spark's query continues; only the lane of operators is closed and opened again. What a crash right after
each step means:

1. All state is made durable. (Crash: an ordinary restart.)
2. It is divided again; see :mod:`tether.engine.query.rescaling`. (Crash: the next start has the old
   number, or the new one, whatever its program says.)
3. Resident state is removed, and the lane is opened with the new numbers. (Crash: a restart with
   those.)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tether.chaos.faults import reach
from tether.core.errors import BadValueError, QueryRefusedError
from tether.core.ids import epoch_after
from tether.engine.deadline import Deadline
from tether.engine.query.rescaling import Rescaling, numbers_there, report_rescaled
from tether.engine.query.splitting import Change, refusal, stored
from tether.spark.graph.resized import resized
from tether.spark.logs.checkpoint import COMMIT_SECONDS
from tether.spark.running.ending import spark_committed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.core.ids import Epoch
    from tether.engine.query.lane import LanePlan
    from tether.engine.query.runner import Runner
    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.running.stores import OpenStore
    from tether.spark.tasks.cluster import SparkCluster

LOOK_SECONDS = 0.005
"""Seconds between checks whether Spark has committed an epoch."""


def as_moved(query: PreparedQuery, stores: Sequence[OpenStore | None]) -> PreparedQuery:
    """The query with the numbers of slots that commands have given it, if any have.

    Args:
        query: As the program has it.
        stores: Its backup stores, locked.
    """
    found: dict[str, int] = {}
    program = {one.name: one.slots for one in query.operators.values()}
    for opened in stores:
        if opened is not None:
            found |= numbers_there(opened.store, program)
    return resized(query, found)


def lane_to_rescale(
    runner: Runner[SparkCluster] | None, *, ended: bool, going_back: bool, twin: bool
) -> Runner[SparkCluster]:
    """The lane, if the number of its slots can be changed now.

    Args:
        runner: The lane; None before the first epoch.
        ended: Whether the query has ended, or is about to.
        going_back: Whether it is about to go back to a snapshot.
        twin: Whether a second run of it may be needed.

    Raises:
        QueryRefusedError: Says why not.
    """
    catching_up = runner is not None and runner.catching_up.now is not None
    whys = {
        "Under its policy a second run of it may be needed, in the slots of before.": twin,
        "The query has ended.": ended,
        "No epoch has run.": runner is None,
        "After a loss the query is reading the stream again.": going_back or catching_up,
    }
    found = [why for why, true in whys.items() if true]
    if runner is None or found:
        raise QueryRefusedError(
            "The number of slots cannot be changed now.",
            why=found[0],
            do="Wait for an epoch, for example with processAllAvailable(), or stop the query and "
            "change the number then: see tether rescale.",
        )
    return runner


def with_slots(query: PreparedQuery, operator: str, slots: int) -> PreparedQuery:
    """The query with another number of slots of one operator.

    Raises:
        BadValueError: There is no such operator, or that is no number of slots.
        QueryRefusedError: It cannot be changed while such a query runs.
        ChangedProgramError: The operator's state cannot be divided.
    """
    one = query.named(operator)
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        raise BadValueError(f"{slots!r} is no number of slots.", do="Pass a whole number above 0.")
    if query.consistency.splits:
        raise QueryRefusedError(
            f"{operator!r} cannot get another number of slots.",
            why=f"Under {query.consistency.name} its operators are at different epochs.",
            do="Leave the number, or leave consistency out.",
        )
    wanted = resized(query, {one.name: slots})
    change = Change(stored(wanted.named(operator), wanted.settings.graph), one.slots)
    if change.operator.refused:
        raise refusal(change, change.operator.refused)
    return wanted


def move_slots(runner: Runner[SparkCluster], plan: LanePlan, query_id: str) -> bool:
    """Bring a lane's stored state to the numbers of slots of a plan; False if it has them already.

    The lane must be between two epochs, the last of which Spark has committed. Afterwards it must be
    opened with that plan.

    Args:
        runner: The open lane.
        plan: The same lane with other numbers.
        query_id: Id of the query.

    Raises:
        ChangedProgramError: It is not possible; the lane continues as it is.
        UnfinishedError: The store failed in the middle.
    """
    log, epoch = runner.books.written, epoch_after(runner.committed_epoch)
    assert log is not None
    faults = plan.settings.faults
    rescaling = Rescaling.of_lane(plan, log, runner.cluster, query_id)
    changes = rescaling.changes()
    if not changes:
        return False
    runner.flush(runner.committed_epoch)
    reach(faults, "rescale-flushed", -1, epoch)
    rescaling.check(changes, epoch)
    rescaling.move(changes, epoch, by_command=True)
    report_rescaled(plan.reports, changes, "it was asked for while the query ran", epoch)
    runner.clean()
    runner.release()
    for name, ledger in runner.plan.ledgers.items():
        plan.ledgers[name].go_on_from(ledger)
    return True


def await_spark(runner: Runner[SparkCluster], checkpoint: str) -> None:
    """Wait until Spark has committed the lane's last epoch.

    Raises:
        QueryRefusedError: It does not.
    """
    deadline, epoch = Deadline(COMMIT_SECONDS), runner.committed_epoch
    while not _committed(runner, checkpoint, epoch):
        if deadline.passed:
            raise QueryRefusedError(
                "The number of slots cannot be changed now.",
                why=f"Spark has not committed epoch {epoch}.",
                do="Try again; or look whether the query has failed.",
            )
        time.sleep(LOOK_SECONDS)


def _committed(runner: Runner[SparkCluster], checkpoint: str, epoch: Epoch) -> bool:
    return spark_committed(runner.cluster.session, checkpoint, epoch)
