"""The true error of every state against the told bound, by brute force, for every way to spread."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.testing.spreading import (
    Added,
    Answering,
    Capped,
    Doubling,
    Echo,
    Flags,
    Keyed,
    Largest,
    Newest,
    Passing,
    Regrouped,
    Relay,
    Stubborn,
    Totals,
    Tripled,
    epochs,
)

from tether import Approximate, Decaying, Hopping, MiniBatch, Operator, Sliding
from tether.core.errors import BadValueError
from tether.testing import LawBrokenError, check_operator, check_pipeline, laws
from tether.testing.local import LocalPipeline, Stage


def chain(*operators: Operator, slots: int = 1, **last: Any) -> list[Stage]:
    stages = [Stage(operator, key=["k"], parallelism=slots) for operator in operators]
    for name, value in last.items():
        setattr(stages[-1], name, value)
    return stages


def diamond(top: Operator) -> list[Stage]:
    return [
        Stage(top),
        Stage(Newest(factor=1.0), inputs=["totals"], key=["k"]),
        Stage(Tripled(factor=3.0), inputs=["totals"], key=["k"]),
        # Rows of both ways meet: the last one of an epoch stays, so the larger error counts.
        Stage(Capped(factor=1.0), inputs=["newest", "tripled"], key=["k"]),
    ]


def loop(gain: float = 0.5) -> list[Stage]:
    return [
        Stage(Echo(factor=1.0), amplification={"answering": gain}),
        Stage(Answering(factor=1.0), feedback_to="echo"),
    ]


TRUE: dict[str, Any] = {
    "totals, newest": lambda: chain(Totals(), Newest(factor=1.0), slots=2),
    "l2": lambda: chain(Totals("l2"), Newest("l2", 1.0), slots=2),
    "max": lambda: chain(Totals("max"), Newest("max", 1.0), slots=2),
    "l1 into max": lambda: chain(Totals("l1"), Newest("max", 1.0)),
    "l2 into max": lambda: chain(Totals("l2"), Newest("max", 1.0)),
    "largest": lambda: chain(Largest(), Newest(factor=1.0)),
    "three in a row": lambda: chain(Totals(), Tripled(factor=3.0), Newest(factor=1.0)),
    "threefold twice": lambda: chain(Largest(), Tripled(factor=3.0), Capped(factor=1.0)),
    "capped": lambda: chain(Totals(), Capped(factor=1.0)),
    "regrouped": lambda: chain(Totals(), Regrouped(factor=2.0)),
    "rows, not totals": lambda: chain(Passing(), Added(), slots=2),
    "diamond": lambda: diamond(Totals()),
    "loop": loop,
}


@pytest.mark.parametrize("name", TRUE)
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), budget=st.sampled_from([30.0, 100.0, 400.0]))
def test_no_state_is_wrong_by_more_than_the_bound(name: str, seed: int, budget: float) -> None:
    try_once(TRUE[name](), epochs(seed), Approximate(budget), seed)


def try_once(stages: list[Stage], rows: list[pa.Table], policy: Approximate, seed: int) -> None:
    try:
        check_pipeline(stages, rows, tolerance=policy, seed=seed, schedules=1)
    except BadValueError as error:
        if "no state was ever lost" not in error.what:
            raise


@pytest.mark.parametrize("name", TRUE)
def test_losses_do_come_to_what_the_bound_allows_for(name: str) -> None:
    used = max(
        check_pipeline(TRUE[name](), epochs(seed), tolerance=Approximate(200.0), schedules=4)
        for seed in range(2)
    )
    assert 0.15 < used <= 1


FALSE: dict[str, Any] = {
    "totals are added": lambda: chain(Totals(), Added(factor=5.0)),
    "max into a sum": lambda: chain(Totals("max"), Regrouped(factor=2.0)),
    "max into l1": lambda: chain(Totals("max"), Newest("l1", 1.0)),
    "a threshold": lambda: chain(Totals(), Flags(factor=1.0)),
    "three times, told as two": lambda: chain(Largest(), Tripled(factor=2.0)),
    "both sums, told as one": lambda: chain(Totals(), Regrouped(factor=1.0)),
    "a loop told as none": lambda: loop(0.0),
    "one that doubles": lambda: chain(Doubling()),
    "the first stays": lambda: chain(Stubborn()),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_factor_that_is_too_small_is_found(name: str) -> None:
    def try_some() -> None:
        for seed in range(20):
            rows = epochs(seed, count=16)
            check_pipeline(FALSE[name](), rows, tolerance=Approximate(60.0), schedules=4)

    with pytest.raises(LawBrokenError) as caught:
        try_some()
    assert caught.value.law == laws.SPREAD


@pytest.mark.parametrize(
    ("operator", "law"),
    [
        (Totals(), None),
        (Totals("max"), None),
        (Largest("l2"), None),
        (Regrouped(), None),
        (Doubling(), laws.GROWTH),
        (Stubborn(), laws.GROWTH),
    ],
)
def test_the_kit_tries_whether_an_error_grows_by_itself(operator: Keyed, law: str | None) -> None:
    batches = [batch for table in epochs(3, count=14) for batch in table.to_batches()]
    if law is None:
        check_operator(operator, batches, schedules=4)
        return
    with pytest.raises(LawBrokenError) as caught:
        check_operator(operator, batches)
    assert caught.value.law == law
    operator.growth = math.inf  # then nothing is promised, and nothing is broken
    check_operator(operator, batches, seed=caught.value.seed, schedules=1)


def lost(stages: list[Stage], budget: float, victim: str, rows: list[pa.Table]) -> LocalPipeline:
    """Lose one operator's state before the last epoch, of a pipeline that hardly ever backs up."""
    run = LocalPipeline(stages, tolerance=Approximate(budget))
    for table in rows[:-1]:
        run.run(table)
    for slot in run.stages[victim].slots:
        run.lose(victim, slot.number)
    run.run(rows[-1])
    return run


def test_many_small_errors_of_each_key_are_no_small_error_of_their_sum() -> None:
    """Each of 500 largest values is off by less than Θ = 40; their sum is off by thousands."""
    rows = [pa.table({"k": np.arange(500), "x": np.full(500, x)}) for x in (10.0, 15.0, 15.0)]
    run = lost(chain(Largest("max"), Regrouped()), 40.0, "largest", rows)
    true = lost(chain(Largest("max"), Regrouped()), 0.0, "largest", rows)

    def total(of: LocalPipeline) -> float:
        return float(of.stages["regrouped"].slots[0].state["sums"].values("x").sum())  # type: ignore[attr-defined]

    after = [pa.table({"k": np.arange(500), "x": np.zeros(500)})]
    run.run(after[0])
    true.run(after[0])
    error = abs(total(run) - total(true))
    now = run.bound()
    assert error <= now.spent
    assert now.promised == now.spent == math.inf
    assert now.unknown == (("largest", "regrouped"),)
    first, second = now.operators
    assert (first.promised, first.own_promised, first.unbounded_by) == (40.0, 40.0, ())
    assert (second.promised, second.own_promised) == (math.inf, 40.0)
    assert second.unbounded_by == ("largest",)


def test_totals_that_are_added_drift_without_limit_after_one_loss() -> None:
    rows = [pa.table({"k": [1], "x": [5.0]}) for _ in range(30)]
    run = lost(chain(Totals(), Added()), 40.0, "totals", rows[:3])
    for table in rows[3:]:
        run.run(table)
    held = run.stages["added"].slots[0].state["held"].values("x")[0]  # type: ignore[attr-defined]
    truth = sum(5.0 * (epoch + 1) for epoch in range(30))
    assert abs(truth - held) > 40.0 == run.bound("totals").promised
    assert run.bound("added").spent == math.inf
    # Nothing is known to be wrong as long as the first has lost nothing.
    assert lost(chain(Totals(), Added()), 40.0, "added", rows[:3]).bound().spent <= 40.0


def test_what_one_has_not_lost_it_may_have_been_given() -> None:
    """A relay's own losses do not show in what it sends; errors of the totals before it do."""
    stages = [*chain(Totals(), Relay(factor=1.0)), *chain(Added())]
    rows = epochs(1, count=8)
    run = lost(stages, 200.0, "relay", rows)
    assert run.bound("added").spent == 0 < run.bound("relay").spent
    assert run.bound("added").operators[0].unbounded_by == ("totals",)
    assert run.bound().unknown == (("relay", "added"),)
    assert lost(stages_of(stages), 200.0, "totals", rows).bound("added").spent == math.inf
    try_once([*chain(Totals(), Relay(factor=1.0)), *chain(Newest())], rows, Approximate(80.0), 3)


def stages_of(stages: list[Stage]) -> list[Stage]:
    """The same once more; those were used."""
    return [
        Stage(type(stage.operator)(factor=stage.operator.factor), key=["k"]) for stage in stages
    ]  # type: ignore[attr-defined,call-arg]


class Telltale(Totals):
    """Promises what is not so: its rows are totals."""

    sends_losses = False


def test_the_kit_tries_whether_losses_are_sent() -> None:
    batches = [batch for table in epochs(3, count=14) for batch in table.to_batches()]
    check_operator(Passing(), batches, schedules=3)
    check_operator(Relay(), batches, schedules=3)
    with pytest.raises(LawBrokenError) as caught:
        check_operator(Telltale(), batches)
    assert caught.value.law == laws.SILENT


def test_a_loop_that_gives_errors_back_undiminished_promises_nothing() -> None:
    rows = epochs(1, count=3)
    run = lost(loop(1.0), 1000.0, "echo", rows)
    assert run.amplification is not None
    assert run.amplification.endless
    assert run.bound().promised == math.inf
    assert lost(loop(0.99), 1000.0, "echo", rows).bound().promised == 1000.0


def test_an_error_that_grows_by_itself_is_told() -> None:
    class Grows(Doubling):
        growth = math.inf

    rows = epochs(1, count=6)
    run = lost(chain(Grows()), 1e4, "grows", rows)
    assert (run.bound().promised, run.bound().spent) == (math.inf, math.inf)
    assert run.bound().operators[0].own_promised == 1e4
    assert run.bound().unknown == (("grows", "grows"),)


def test_a_policy_of_its_own_does_not_hide_what_those_before_have_lost() -> None:
    rows = epochs(2, count=4)
    stages = chain(Totals(), Newest(factor=1.0), policy=Approximate(10.0))
    stages[0].policy = Approximate(200.0)
    now = lost(stages, 0.0, "totals", rows).bound("newest")
    assert now.promised == 210.0
    assert 0 < now.spent <= 100.0
    exact = chain(Totals(), Added(), policy=Approximate(10.0))
    exact[0].policy = MiniBatch()
    told = lost(exact, 0.0, "totals", rows).bound()
    assert (told.promised, told.spent) == (10.0, 0.0)


class Windowed(Totals):
    def on_window_end(self, window: Any, out: Any) -> None:
        self.held.clear()


class NewestInWindow(Newest):
    def on_window_end(self, window: Any, out: Any) -> None:
        self.held.clear()


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), budget=st.sampled_from([20.0, 80.0]))
def test_windows_that_end_together_forget_together(seed: int, budget: float) -> None:
    policy = Approximate(budget, window=Hopping(3, "epochs"))
    stages = chain(Windowed(), NewestInWindow(factor=1.0), slots=2)
    try_once(stages, epochs(seed, count=12), policy, seed)
    assert_promised(stages, policy, budget)


def assert_promised(stages: list[Stage], policy: Approximate, promised: float) -> None:
    run = LocalPipeline(stages, tolerance=policy)
    run.run(epochs(0, count=1)[0])
    assert run.bound().promised == promised


@pytest.mark.parametrize(
    "window", [Sliding(3, "epochs"), Decaying(3, "epochs"), Hopping(3, "items"), Hopping(60.0)]
)
def test_what_leaves_one_window_may_stay_in_the_next_operator(window: Any) -> None:
    """θ is given back when a loss has left the window; it has not left those that took it over."""
    policy = Approximate(20.0, window=window)
    assert_promised(chain(Windowed(), NewestInWindow(factor=1.0)), policy, math.inf)
    assert_promised(chain(Passing(), Added()), policy, 20.0)
    assert_promised(chain(Windowed()), policy, 20.0)


def test_feedback_comes_after_the_window() -> None:
    policy = Approximate(20.0, window=Hopping(3, "epochs"))
    assert_promised(loop(0.5), policy, math.inf)
    assert_promised(loop(0.0), policy, 20.0)


def test_what_is_given_for_a_stage_counts_more_than_what_its_operator_says() -> None:
    told = LocalPipeline(chain(Totals(), Newest(factor=1.0), amplification=7.0))
    told.run(epochs(0, count=1)[0])
    assert told.amplification is not None
    assert told.amplification.factor("totals", "newest") == 7
    one = LocalPipeline(
        chain(Totals(), Newest(factor=1.0), amplification={"totals": 4.0}),
    )
    one.run(epochs(0, count=1)[0])
    assert one.amplification is not None
    assert one.amplification.factor("totals", "newest") == 4


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        (lambda: chain(Totals(), Newest(), amplification=-1.0), "negative"),
        (lambda: chain(Totals(), Newest(), amplification=math.nan), "NaN"),
        (lambda: chain(Totals(), Newest(), amplification={"nobody": 1.0}), "nobody"),
        (lambda: chain(Totals(), Newest(factor="much")), "not a number"),  # type: ignore[arg-type]
    ],
)
def test_nonsense_is_refused(stages: Any, text: str) -> None:
    with pytest.raises(BadValueError, match=text):
        LocalPipeline(stages()).run(epochs(0, count=1)[0])


@pytest.mark.parametrize("growth", [0.5, math.nan, True, "twice"])
def test_an_error_cannot_be_declared_away(growth: Any) -> None:
    class Shrinks(Totals):
        pass

    Shrinks.growth = growth
    with pytest.raises(BadValueError, match="growth"):
        LocalPipeline(chain(Shrinks())).run(epochs(0, count=1)[0])


def test_a_check_that_tries_nothing_says_so() -> None:
    with pytest.raises(BadValueError, match="no state was ever lost"):
        check_pipeline(chain(Totals()), epochs(0), tolerance=Approximate(0.0))
