"""Planners against each other, against all plans there are, and against their bound."""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.core.errors import BadValueError, TetherError
from tether.planning import (
    Link,
    Node,
    SolverMissingError,
    Specification,
    Topology,
    bound_curve,
    curve,
    output_fidelity,
    plan,
    random_topology,
)
from tether.planning.factors import factors
from tether.planning.growing import GrowingStructured
from tether.planning.model import model_of
from tether.planning.optimum import Optimum
from tether.planning.papers import figure_1, figure_6
from tether.planning.planners import PLANNERS
from tether.planning.programme import Programme

from .test_trees import chain
from .topologies import topologies

pytest.importorskip("highspy")
SMALL = {"operators": 3, "slots": 3}


def best_of_all(topology: Topology, copies: int) -> float:
    """The best plan, found by looking at every one."""
    model = model_of(topology)
    chosen = list(combinations(range(model.size), min(copies, model.size)))
    flags = np.zeros((model.size, len(chosen)), bool)
    for column, slots in enumerate(chosen):
        flags[list(slots), column] = True
    return float(model.values(flags).max())


@settings(max_examples=60)
@given(topologies(**SMALL), st.integers(0, 6))
def test_dynamic_programming_and_optimal_find_the_best_plan(topology, copies: int) -> None:
    model, copies = model_of(topology), min(copies, len(topology.slots))
    best = best_of_all(topology, copies)
    for name in ("dynamic-programming", "optimal"):
        chosen = PLANNERS[name](topology, model).choose(copies)
        assert chosen.sum() <= copies
        assert model.value(chosen) == pytest.approx(best, abs=1e-6), name


@settings(max_examples=60)
@given(topologies(operators=5, slots=4), st.integers(0, 12))
def test_no_plan_passes_the_bound_or_its_copies(topology: Topology, copies: int) -> None:
    model, copies = model_of(topology), min(copies, len(topology.slots))
    bound = Optimum(model).bound(copies)
    for name in ("structure-aware", "greedy"):
        chosen = PLANNERS[name](topology, model).choose(copies)
        assert chosen.sum() <= copies
        assert model.value(chosen) <= bound + 1e-9


@settings(max_examples=40)
@given(topologies(operators=5, slots=4), st.integers(1, 12))
def test_every_slot_of_a_structure_aware_plan_is_of_use(topology: Topology, copies: int) -> None:
    model = model_of(topology)
    chosen = PLANNERS["structure-aware"](topology, model).choose(copies)
    assert (model.useful(model.survival(chosen[:, None]))[:, 0] == chosen).all()


@settings(max_examples=40)
@given(topologies(operators=5, slots=3))
def test_the_value_is_the_product_of_the_factors(topology: Topology) -> None:
    model = model_of(topology)
    parts = factors(model)
    assert sorted(slot for part in parts for slot in part.model.slots) == sorted(model.slots)
    random = np.random.default_rng(5)
    for _ in range(4):
        alive = random.random(model.size) < 0.7
        product = 1.0
        for part in parts:
            product *= part.model.value(alive[part.model.origin]) ** part.power
        assert product == pytest.approx(model.value(alive), abs=1e-12)


@settings(max_examples=30)
@given(topologies(operators=4, slots=3), st.integers(0, 8))
def test_both_forms_of_the_programme_bound_alike(topology: Topology, copies: int) -> None:
    model, copies = model_of(topology), min(copies, len(topology.slots))
    listed = Programme(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tether.planning.programme.MOST_SOLVED", 0)
        by_slots = Programme(model)
    best = model.value(listed.best(copies))
    assert by_slots.relaxed(copies).value >= best - 1e-9
    if by_slots.exact:
        assert model.value(by_slots.best(copies)) == pytest.approx(best, abs=1e-6)


KINDS = [
    Specification(operators=(4, 6), slots=(1, 6), skew=0.1),
    Specification(operators=(4, 6), slots=(1, 6), skew=0.1, joins=0.5),
    Specification(operators=(4, 5), slots=(1, 4), structure="full", joins=0.5),
    Specification(operators=(4, 6), slots=(1, 4), structure="general", joins=0.5),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.structure}-{kind.joins}")
def test_structure_aware_is_near_the_best(kind: Specification) -> None:
    reached = []
    for seed in range(4):
        topology = random_topology(kind, seed)
        model = model_of(topology)
        planner, optimum = PLANNERS["structure-aware"](topology, model), Optimum(model)
        for share in (0.2, 0.3, 0.5):
            copies = round(share * model.size)
            best = model.value(optimum.best(copies))
            if best > 0:
                reached.append(model.value(planner.choose(copies)) / best)
    assert np.mean(reached) >= 0.95


def test_structure_aware_finds_output_where_greedy_finds_none() -> None:
    topology = chain([8, 8, 8], ["one-to-one", "one-to-one"])
    assert plan(topology, 3, planner="greedy").fidelity == 0.0
    assert plan(topology, 3).fidelity == pytest.approx(1 / 8)


def test_a_planner_may_be_asked_again_for_more() -> None:
    topology = chain([4, 2, 2], ["merge", "one-to-one"])
    model = model_of(topology)
    planner = PLANNERS["structure-aware"](topology, model)
    asked = [model.value(planner.choose(copies)) for copies in (0, 1, 8, 4)]
    fresh = [
        model.value(PLANNERS["structure-aware"](topology, model).choose(copies))
        for copies in (0, 1, 8, 4)
    ]
    assert asked == fresh


@settings(max_examples=40)
@given(topologies(operators=4, slots=4), st.integers(3, 10))
def test_what_a_structured_plan_remembers_is_as_if_worked_out_again(topology, copies) -> None:
    model = model_of(topology)
    names = [tuple(node.name for node in topology.nodes)]
    alive, remembering = model.none, GrowingStructured(model, names)
    for left in range(copies, 0, -1):
        steps = remembering.steps(alive, left, model.none)
        again = GrowingStructured(model, names).steps(alive, left, model.none)
        gains = [model.value(alive | one.any(axis=1)) if one.size else 0 for one in (steps, again)]
        assert bool(steps.size) == bool(again.size)
        assert gains[0] == pytest.approx(gains[1])
        if not steps.size:
            break
        alive = alive | steps[:, 0]


def test_each_kind_has_a_planner_that_refuses_others() -> None:
    structured, full = chain([4, 2], ["merge"]), chain([3, 3], ["full"])
    assert plan(structured, 3, planner="structured").fidelity > 0
    assert plan(full, 2, planner="full").fidelity == pytest.approx(1 / 9)
    for topology, planner in ((structured, "full"), (full, "structured")):
        with pytest.raises(BadValueError, match="does not fit"):
            plan(topology, 3, planner=planner)


def test_a_plan_says_how_far_from_the_best_it_can_be() -> None:
    chosen = plan(figure_1("correlated"), 6)
    best = plan(figure_1("correlated"), 6, planner="optimal")
    assert best.bound is not None
    assert chosen.bound is not None
    assert chosen.most_below_best is not None
    assert best.fidelity * (1 - chosen.most_below_best) <= chosen.fidelity + 1e-6
    assert output_fidelity(figure_1("correlated"), chosen.copied) == chosen.fidelity


def test_the_optimum_of_more_trees_than_can_be_counted() -> None:
    topology = chain([100] * 10, ["full"] * 9)
    best = plan(topology, 500, planner="optimal")
    assert best.fidelity == pytest.approx(0.5**10)
    assert plan(topology, 500).fidelity == pytest.approx(best.fidelity)


def test_completeness_is_another_aim() -> None:
    nodes = (
        Node("a", 2, rates=(9.0, 1.0)),
        Node("b", 2, rates=(1.0, 9.0)),
        Node("c", 2, "correlated", 1.0),
    )
    topology = Topology(nodes, (Link("a", "c", "one-to-one"), Link("b", "c", "one-to-one")))
    aimed = plan(topology, 3, metric="completeness")
    assert plan(topology, 3).fidelity == pytest.approx(0.5)
    assert aimed.fidelity == 0.0  # more rows are processed, and none of them comes out


@pytest.mark.parametrize("planner", ["structure-aware", "greedy", "optimal", "dynamic-programming"])
def test_fewer_copies_than_the_smallest_tree_get_a_clear_answer(planner) -> None:
    with pytest.raises(BadValueError, match="smallest complete tree of the topology has 5 slots"):
        plan(figure_6(), 4, planner=planner)
    assert plan(figure_6(), 0, planner=planner).copied == ()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"copies": 1, "share": 0.5},
        {"copies": -1},
        {"copies": 1.5},
        {"share": 1.1},
        {"share": -1},
    ],
)
def test_numbers_of_copies_that_cannot_be(options) -> None:
    with pytest.raises(BadValueError):
        plan(figure_6(), **options)


def test_a_share_is_rounded_down_and_more_copies_than_slots_are_all() -> None:
    topology = chain([5, 5], ["one-to-one"])
    assert plan(topology, share=0.7).allowed == 7
    assert plan(topology, 99).fidelity == pytest.approx(1.0)


def test_too_large_for_a_planner() -> None:
    with pytest.raises(BadValueError, match="complete trees"):
        plan(chain([10] * 5, ["full"] * 4), 20, planner="dynamic-programming")
    with pytest.raises(BadValueError, match="planner"):
        plan(figure_6(), 9, planner="magic")  # type: ignore[arg-type]


def test_without_the_solver_there_is_a_plan_and_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    topology = chain([6, 2, 2], ["merge", "one-to-one"])
    chosen = plan(topology, 5)
    assert chosen.fidelity > 0
    assert chosen.bound is None
    assert chosen.most_below_best is None
    with pytest.raises(SolverMissingError, match="tether\\[plan\\]"):
        plan(topology, 5, planner="optimal")
    with pytest.raises(SolverMissingError):
        bound_curve(topology)


def test_curves_grow_and_stay_below_the_bound() -> None:
    topology = random_topology(KINDS[0], 1)
    most = {point.copies: point.fidelity for point in bound_curve(topology)}
    for planner in ("structure-aware", "greedy"):
        points = curve(topology, planner)
        values = [point.fidelity for point in points]
        assert values == sorted(values)
        assert all(point.fidelity <= most[point.copies] + 1e-9 for point in points)
        assert values[-1] == pytest.approx(1.0)


def test_the_best_plan_of_a_hard_topology_is_given_up_and_the_bound_is_not() -> None:
    """Its programme has 1,288 trees, and would be at work for minutes."""
    hard = Specification(operators=(4, 6), slots=(1, 5), skew=0.1, structure="full")
    optimum = Optimum(model_of(random_topology(hard, 10_022)), seconds=0.1)
    with pytest.raises(TetherError, match="not found"):
        optimum.best(11)
    assert 0.5 < optimum.bound(11) <= 1
