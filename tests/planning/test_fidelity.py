"""The loss model: the paper's example, its laws, and what it means for single rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tether.core.errors import BadValueError
from tether.planning import (
    Link,
    Node,
    Topology,
    information_loss,
    internal_completeness,
    output_fidelity,
)
from tether.planning.papers import figure_2, figure_6
from tether.planning.wiring import output_rates, pairs, substream_rates

from .topologies import topologies, with_living


@pytest.mark.parametrize(("inputs", "loss"), [("correlated", 2 / 5), ("independent", 1 / 4)])
def test_figure_2(inputs, loss: float) -> None:
    topology = figure_2(inputs)
    alive = set(topology.slots) - {("O2", 1)}
    assert information_loss(topology, alive)["O3", 0] == pytest.approx(loss)
    assert output_fidelity(topology, alive) == pytest.approx(1 - loss)


def test_completeness_knows_nothing_of_joins() -> None:
    joined, united = figure_2("correlated"), figure_2("independent")
    alive = set(joined.slots) - {("O2", 1)}
    assert internal_completeness(joined, alive) == internal_completeness(united, alive)


def test_a_hierarchy_loses_what_its_lost_slots_carry() -> None:
    topology = figure_6()
    for slots, operator in ((8, "O1"), (4, "O2"), (2, "O3")):
        alive = set(topology.slots) - {(operator, 0)}
        assert output_fidelity(topology, alive) == pytest.approx(1 - 1 / slots)


@given(with_living())
def test_fidelity_is_a_part_and_grows_with_the_living(case) -> None:
    topology, alive = case
    for metric in (output_fidelity, internal_completeness):
        value = metric(topology, alive)
        assert 0.0 <= value <= 1.0
        for slot in topology.slots:
            assert metric(topology, alive | {tuple(slot)}) >= value - 1e-12
        assert metric(topology, topology.slots) == pytest.approx(1.0)
        assert metric(topology, ()) == 0.0


def arriving(topology: Topology, alive, random: np.random.Generator, rows: int) -> float:
    """The part of the source's rows that reach the output, each row sent on its way by chance."""
    rates = output_rates(topology)
    starts = [(name, slot) for name in topology.sources for slot in range(len(rates[name]))]
    chances = np.concatenate([rates[name] for name in topology.sources])
    at = [starts[one] for one in random.choice(len(starts), rows, p=chances / chances.sum())]
    arrived = 0
    for start in at:
        row = start
        while row in alive:
            links = topology.outputs_of(row[0])
            if not links:
                arrived += 1
                break
            senders, receivers = pairs(topology, links[0])
            ways = np.flatnonzero(senders == row[1])
            flows = substream_rates(topology, links[0], np.ones(len(rates[row[0]])))[ways]
            row = links[0].target, int(random.choice(receivers[ways], p=flows / flows.sum()))
    return arrived / rows


@settings(max_examples=25, deadline=None)
@given(with_living(trees=True))
def test_fidelity_is_the_share_of_source_rows_that_arrive_in_trees(case) -> None:
    topology, alive = case
    if not all(rates.sum() for rates in output_rates(topology).values()):
        return  # nothing flows, so there is no share
    rows = 1500
    share = arriving(topology, alive, np.random.default_rng(7), rows)
    # Five standard deviations of a mean of so many rows.
    assert share == pytest.approx(output_fidelity(topology, alive), abs=2.5 / rows**0.5)


@given(topologies())
def test_the_sum_over_trees_is_the_recursion(topology: Topology) -> None:
    from tether.planning.model import model_of
    from tether.planning.trees import weighted_trees

    model = model_of(topology)
    trees = weighted_trees(model)
    assert sum(trees.values()) == pytest.approx(1.0)
    random = np.random.default_rng(3)
    for _ in range(4):
        alive = random.random(model.size) < 0.6
        chosen = sum(1 << int(slot) for slot in np.flatnonzero(alive))
        whole = sum(weight for tree, weight in trees.items() if not tree & ~chosen)
        assert whole == pytest.approx(model.value(alive), abs=1e-12)


@given(with_living())
def test_gains_are_what_a_single_slot_adds(case) -> None:
    from tether.planning.model import model_of

    topology, living = case
    if any(len(topology.outputs_of(node.name)) > 1 for node in topology.nodes):
        return  # a slot may be in a tree twice: there gains are of first order only
    model = model_of(topology)
    alive = model.mask(living)[:, None]
    gains = model.gains(alive, model.survival(alive))[:, 0]
    for slot in np.flatnonzero(~alive[:, 0]):
        more = alive.copy()
        more[slot] = True
        added = float(model.values(more)[0] - model.values(alive)[0])
        assert gains[slot] == pytest.approx(added, abs=1e-12)


def test_a_slot_that_is_not_there_is_refused() -> None:
    topology = Topology((Node("a", 2, rates=1.0), Node("b")), (Link("a", "b"),))
    with pytest.raises(BadValueError, match=r"no slot \('a', 2\)"):
        output_fidelity(topology, [("a", 2)])
