"""Policies × algorithms × faults × points, each cell against the truth, by an independent judge.

A few cells run with every test run; ``make chaos`` runs them all and prints a table. Random choices come
from a seed in the cell's name: ``TETHER_SEED`` gives others.
"""

from __future__ import annotations

import pytest
from tests.kills import PROPERTY

from .checking import check
from .matrix import cases
from .order import spread

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

CASES = spread(cases())


def marks(case):
    of_a_process = [pytest.mark.timeout(900)] if case.kind.process else []
    return of_a_process + ([] if case.short else [pytest.mark.long])


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=marks(c)) for c in CASES])
def test_cell(spark, tmp_path, record_property, case):
    record_property("chaos", (case.policy, case.fault, case.seed))
    for victim, point in check(spark, tmp_path, case):
        record_property(PROPERTY, ("on Spark", case.policy, victim, point))


def test_the_matrix_has_every_policy_in_its_short_form():
    assert {c.policy for c in CASES if c.short} == {c.policy for c in CASES} - {"no-tolerance"}
    assert len({c.fault for c in CASES if c.short}) >= 7
    assert len({c.name for c in CASES}) == len(CASES)


def test_a_run_that_is_stopped_early_has_seen_a_little_of_everything():
    few = CASES[: len(CASES) // 10]
    for part in ("policy", "fault", "point", "workload"):
        assert {getattr(c, part) for c in few} == {getattr(c, part) for c in CASES}
