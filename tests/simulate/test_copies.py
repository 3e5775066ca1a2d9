"""Copies in the simulator: the engine itself, on nodes that die alone, by racks, or nearly all."""

from __future__ import annotations

import json

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from tether.cli import simulate as command
from tether.core.errors import BadValueError
from tether.core.graph import SlotId
from tether.policies.barrier import Barrier
from tether.policies.partially_active import PartiallyActive
from tether.simulate.epoch_faults import EpochFault
from tether.simulate.epoch_query import EpochScenario
from tether.simulate.epochs import EpochWorld, simulate_epochs

ALL = EpochFault("all-but-standby", 7, SlotId("000", 0))


def scenario(policy, **options):
    return EpochScenario(
        **{"copies": 6, "operators": 2, "epochs": 12, "nodes": 7, "racks": 3, "policy": policy}
        | options
    )


def half(**options):
    return PartiallyActive(**{"share": 0.5, "snapshots": Barrier(4)} | options)


def test_standby_nodes_outlive_all_others_and_what_was_planned_goes_on():
    """The share of the output that goes on is the plan's fidelity, and all of it is corrected."""
    report = simulate_epochs(scenario(half(standby=2, meanwhile="skip")), faults=[ALL])
    assert report.fidelity[:7] == (1.0,) * 7
    assert report.fidelity[7] == pytest.approx(0.5)
    assert report.fidelity[-1] == 1.0
    assert (report.promotions, report.take_overs, report.rewinds) == (6, 1, 0)
    assert (report.violations, report.state_error) == ((), (0.0, 0.0))


def test_without_standby_the_same_failure_takes_the_copies_too():
    report = simulate_epochs(scenario(half(meanwhile="skip")), faults=[ALL])
    assert report.fidelity[7] == 0.0
    assert (report.promotions, report.take_overs) == (0, 1)
    assert report.state_error == (0.0, 0.0)


def test_with_copies_of_all_slots_nothing_is_tentative():
    report = simulate_epochs(scenario(half(share=1.0, standby=2, meanwhile="skip")), faults=[ALL])
    assert set(report.fidelity) == {1.0}
    assert (report.promotions, report.take_overs, report.rewinds) == (12, 0, 0)


def test_a_copy_that_died_is_made_again_elsewhere():
    """One node at a time dies, each when the copies lost before have been made again."""
    faults = [EpochFault("node", epoch, SlotId("000", node)) for epoch, node in ((3, 0), (12, 1))]
    world = EpochWorld(scenario(half(share=1.0), epochs=22), faults)
    world.run()
    told = [event.what for event in world.query.story.events()]
    assert told.count("promoted") >= 2
    assert "rewound" not in told
    copies = world.query.runner.copies
    assert copies is not None
    assert {seat.lag for seat in copies.standing()} == {0}
    speaking = {(s.operator, s.slot): s.executor for s in copies.standing() if s.speaks}
    for seat in copies.standing():
        if not seat.speaks:
            assert seat.executor != speaking[seat.operator, seat.slot]
    assert world.violations == []


faults = st.builds(
    EpochFault,
    kind=st.sampled_from(["node", "rack", "all-but-standby"]),
    epoch=st.integers(1, 11),
    slot=st.builds(SlotId, st.just("000"), st.integers(0, 5)),
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(faults, max_size=5),
    st.sampled_from([None, "skip", "stale"]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([0.34, 0.5, 1.0]),
)
def test_whatever_dies_the_answer_is_exact_in_the_end(struck, how, standby, share):
    policy = half(share=share, standby=standby, meanwhile=how, snapshots=Barrier(3))
    report = simulate_epochs(scenario(policy, copies=3), faults=struck)
    assert (report.violations, report.state_error) == ((), (0.0, 0.0))
    if how is None:
        assert set(report.fidelity) == {1.0}


def test_a_driver_that_dies_while_rows_are_tentative_is_followed_by_an_exact_one():
    faults = [ALL, EpochFault("driver", 8), EpochFault("driver-before-record", 9)]
    policy = half(standby=2, meanwhile="stale", snapshots=Barrier(40))
    report = simulate_epochs(scenario(policy, epochs=14), faults=faults)
    assert (report.violations, report.state_error) == ((), (0.0, 0.0))
    assert report.take_overs == 1


def test_copies_need_nodes():
    report = simulate_epochs(scenario(half(meanwhile="skip"), nodes=None), failures=9)
    assert (report.violations, report.promotions, report.take_overs) == ((), 0, 0)
    with pytest.raises(BadValueError, match="too few"):
        scenario(half(standby=2), nodes=3)


def test_the_command_runs_nodes_and_racks(capsys):
    options = ["--slots", "12", "--nodes", "6", "--racks", "2", "--rounds", "8", "--failures", "3"]
    simulate(["--policy", "partially-active:standby=1,meanwhile=skip", *options, "--json"])
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["detail"]["violations"] == []
    assert result["workload"]["nodes"] == 6
    with pytest.raises(BadValueError, match="in epochs"):
        simulate(options)


def simulate(arguments):
    app = typer.Typer()
    app.command()(command.simulate)
    app(arguments, standalone_mode=False)
