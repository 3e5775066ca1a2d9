"""Every exact policy on every kind of query, with everything killed at every step of the protocol.

One run meets one kind of victim at all points, an epoch or two apart; its output must be, row for row
and epoch by epoch, that of a run without failures. This is the long form; ``test_exact`` is the short.
"""

from __future__ import annotations

import pytest

from tether.spark.faults import Fault
from tether.testing.epochs import write_epochs

from .exact_job import ExactJob
from .exact_queries import KINDS, POLICIES, forget, start

pytestmark = [pytest.mark.long, pytest.mark.chaos, pytest.mark.timeout(900)]

STEPS = ["before-attach", "halfway", "after-apply", "after-commit"]
"""Points that every policy comes to in every epoch."""
LOGGING = ["after-log", "during-backup", "during-writing"]
RECOVERING = ["during-recovery", "during-replay"]


def faults(work, kind, points, action, *, apart):
    """A strike at each point, each in its own epoch, at one operator after the other."""
    operators = list(kind.slots)
    return [
        Fault(
            point=point,
            epoch=1 + apart * number,
            operator=operators[number % len(operators)] if point in STEPS else None,
            action=action,
            marker=str(work / f"struck-{point}"),
        )
        for number, point in enumerate(points)
    ]


def struck(work, points):
    return {point for point in points if (work / f"struck-{point}").exists()}


@pytest.fixture(params=POLICIES)
def policy(request):
    return request.param


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_workers_killed_at_every_step_change_no_answer(spark, tmp_path, policy, kind):
    points = STEPS + LOGGING + RECOVERING
    query_kind = KINDS[kind]
    tables = query_kind.tables(len(points) + 3)
    write_epochs(tmp_path / "in", tables)
    strikes = faults(tmp_path, query_kind, points, "kill", apart=1)
    # Workers come to the steps of recovery only where there is something to recover.
    strikes += forget(tmp_path, query_kind, 5, only=-1) + forget(tmp_path, query_kind, 9)
    options = {"trigger": {"availableNow": True}}
    query = start(spark, query_kind, POLICIES[policy], tmp_path, strikes, **options)
    query.awaitTermination()
    query_kind.check(tables, tmp_path / "out")
    assert query.bound().spent == 0
    assert query.totals()["losses"] == 0
    assert struck(tmp_path, points) >= {*STEPS, "during-recovery"}


def test_executors_killed_at_every_step_change_no_answer(tmp_path, policy, kind):
    points = STEPS + LOGGING + RECOVERING[:1]
    tables = KINDS[kind].tables(2 * len(points) + 2)
    write_epochs(tmp_path / "in", tables)
    job = ExactJob(kind, policy, tmp_path, master="local-cluster[2,1,900]")
    result = job.run(faults(tmp_path, KINDS[kind], points, "executor", apart=2))
    assert result is not None, job.log()
    KINDS[kind].check(tables, tmp_path / "out")
    assert (result["spent"], result["losses"]) == (0, 0)
    assert struck(tmp_path, points) >= set(STEPS)
    assert result["events"]["recovery"] >= 1


@pytest.mark.parametrize("arena_scope", ["executor", "node"])
def test_drivers_killed_at_every_step_change_no_answer(tmp_path, policy, kind, arena_scope):
    """In local mode the driver and its executor are one: with "executor" the state dies with it."""
    points = STEPS + LOGGING + RECOVERING[: 2 if arena_scope == "executor" else 0]
    tables = KINDS[kind].tables(len(points) + 3)
    write_epochs(tmp_path / "in", tables)
    job = ExactJob(kind, policy, tmp_path, arena_scope=arena_scope)
    strikes = faults(tmp_path, KINDS[kind], points, "executor", apart=1)
    deaths = 0
    while (result := job.run(strikes)) is None:
        deaths += 1
        assert deaths == len(struck(tmp_path, points)), job.log()  # no one died but by our hand
    assert deaths >= len(STEPS)
    KINDS[kind].check(tables, tmp_path / "out")
    assert result["spent"] == 0
