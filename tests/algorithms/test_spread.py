"""What the ready-made operators declare of each other's errors, tried by brute force."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tether import Approximate, Operator
from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.features import DenseFeatures
from tether.algorithms.grep import Grep, MergedLines
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch, compensation
from tether.algorithms.incidents import DistinctIncidents, JamDetector, JamReport, SegmentSpeeds
from tether.algorithms.logistic_model import LogisticModel
from tether.algorithms.logistic_regression import GlobalModel, LocalModel, Predict
from tether.algorithms.online_join import JoinEstimate, JoinSample, RippleJoin
from tether.algorithms.top_k import SliceCounts, TopK, WindowCounts
from tether.algorithms.word_count import MergedCounts, PartialCounts
from tether.core.errors import BadValueError
from tether.data import dense_examples, incident_reports, locations, packets, requests
from tether.operator import Loss
from tether.testing import check_pipeline
from tether.testing.local import LocalPipeline, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tether.core.bound import Bound

FEATURES = DenseFeatures(["x0", "x1"])
ROADS: dict[str, Any] = {"seconds": 10, "users": 300, "segments": 12, "every": 5, "seed": 2}


def hitters() -> list[Stage]:
    local = LocalSketch(["src", "dst"], value="bytes", threshold=4e4, spread_over=2, width=50)
    return [Stage(local, parallelism=2), Stage(GlobalSketch(threshold=4e4, width=50))]


def top() -> list[Stage]:
    return [
        Stage(SliceCounts("key", time="time", pane=1.0)),
        Stage(WindowCounts(k=5, panes=3), key=["key"], parallelism=3),
        Stage(TopK(5), feedback_to="window_counts"),
    ]


def jams() -> list[Stage]:
    return [
        Stage(SegmentSpeeds(), inputs=["locations"]),
        Stage(DistinctIncidents(), inputs=["reports"], key=["incident"], parallelism=2),
        Stage(
            JamDetector(window=60, slide=10, jam_speed=30.0),
            inputs=["segment_speeds", "distinct_incidents"],
            key=["segment"],
            parallelism=2,
        ),
        Stage(JamReport()),
    ]


def join() -> list[Stage]:
    return [
        Stage(JoinSample(["dst"], rate=0.5, time="time", bucket=10)),
        Stage(RippleJoin(rate=0.5), key=["dst", "bucket"], parallelism=2),
        Stage(JoinEstimate(rate=0.5)),
    ]


def words() -> list[Stage]:
    return [Stage(PartialCounts()), Stage(MergedCounts(), key=["word"], parallelism=3)]


def learning() -> list[Stage]:
    return [
        Stage(LocalModel(FEATURES), parallelism=2),
        Stage(GlobalModel(FEATURES), feedback_to="local_model"),
    ]


def two_sides(epochs: int) -> list[pa.Table]:
    draw = np.random.default_rng(5)
    return [
        pa.table(
            {
                "dst": draw.integers(0, 9, 60),
                "time": 60.0 * draw.random(60),
                "is_left": draw.random(60) < 0.5,
            }
        )
        for _ in range(epochs)
    ]


def lines(epochs: int) -> list[pa.Table]:
    draw = np.random.default_rng(6)
    return [
        pa.table({"value": [" ".join("abcde"[i] for i in draw.integers(0, 5, 9))] * 4})
        for _ in range(epochs)
    ]


def roads(epochs: int) -> list[dict[str, pa.Table]]:
    both = zip(locations(epochs, rate=20, **ROADS), incident_reports(epochs, **ROADS), strict=True)
    return [{"locations": one, "reports": other} for one, other in both]


CASES: dict[str, tuple[Any, Any, float]] = {
    "hitters": (hitters, lambda: list(packets(10, 60, flows=30, seed=1)), 20_000.0),
    "top": (top, lambda: list(requests(12, 40, items=20, rate=25, drift=3, seed=4)), 60.0),
    "jams": (jams, lambda: roads(10), 200.0),
    "join": (join, lambda: two_sides(8), 60.0),
    "words": (words, lambda: lines(8), 30.0),
    "learning": (
        learning,
        lambda: list(dense_examples(epochs=6, rows=300, features=2, seed=2)),
        0.5,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_ready_made_state_is_wrong_by_more_than_the_bound(name: str) -> None:
    stages, rows, budget = CASES[name]
    used = check_pipeline(stages(), rows(), tolerance=Approximate(budget), schedules=6)
    assert name == "learning" or 0.1 < used <= 1


def told(name: str) -> Bound:
    stages, rows, budget = CASES[name]
    run = LocalPipeline(stages(), tolerance=Approximate(budget))
    run.run(rows()[0])
    return run.bound()


@pytest.mark.parametrize("name", ["hitters", "top", "words"])
def test_the_end_of_the_pipeline_has_a_promise(name: str) -> None:
    now = told(name)
    assert now.promised == CASES[name][2]
    assert all(one.promised == CASES[name][2] for one in now.operators)
    # Nothing is shared with operators whose losses do not matter to it.
    assert [one.own_promised for one in now.operators][-1] == CASES[name][2]


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("jams", {("jam_detector", "jam_report")}),
        ("join", {("ripple_join", "join_estimate")}),
        (
            "learning",
            {
                ("local_model", "local_model"),
                ("local_model", "global_model"),
                ("global_model", "local_model"),
            },
        ),
    ],
)
def test_where_nothing_is_promised_for_the_end_that_is_told(name: str, unknown: set) -> None:
    now = told(name)
    assert (now.promised, set(now.unknown)) == (math.inf, unknown)
    assert all(one.own_promised == CASES[name][2] for one in now.operators)


@pytest.mark.parametrize(
    ("after", "before", "factor"),
    [
        (MergedLines(), KeyedAggregate(), 1.0),
        (Grep("a"), KeyedAggregate(), math.inf),
        (KeyedAggregate(), KeyedAggregate(), math.inf),  # it adds; what comes are running totals
        (MergedCounts(), MergedCounts(), math.inf),
        (GlobalSketch(threshold=1), KeyedAggregate(), math.inf),
        (TopK(3), KeyedAggregate(), math.inf),
        (WindowCounts(k=3, panes=2), KeyedAggregate(), math.inf),
        (JamDetector(), KeyedAggregate(), math.inf),
        # What these lose does not matter to those behind them; what comes to them may be wrong.
        (GlobalSketch(threshold=1), LocalSketch(["k"], threshold=1), math.inf),
        (JamDetector(), DistinctIncidents(), math.inf),
        (Predict(LogisticModel(FEATURES)), GlobalModel(FEATURES), 1.0),
        (Predict(LogisticModel(FEATURES)), LocalModel(FEATURES), math.inf),
    ],
)
def test_what_is_declared(after: Operator, before: Operator, factor: float) -> None:
    assert after.amplification(before) == factor


def test_what_is_lost_is_not_what_is_wrong() -> None:
    local = LocalSketch(["k"], threshold=1)
    assert GlobalSketch(threshold=1).amplification_of_losses(local) == 0.0
    assert JamDetector().amplification_of_losses(DistinctIncidents()) == 0.0
    assert KeyedAggregate().amplification_of_losses(KeyedAggregate()) == math.inf


def both(name: str, budget: float, lose: dict[int, str]) -> Iterator[tuple[Any, Any, Bound]]:
    """A clean and a lossy run side by side: the answers of each epoch, and the bound after it."""
    stages, rows, _ = CASES[name]
    clean = LocalPipeline(stages())
    lossy = LocalPipeline(stages(), tolerance=Approximate(budget))
    for epoch, table in enumerate(rows()):
        if epoch in lose:
            for slot in range(lossy.stages[lose[epoch]].parallelism):
                lossy.lose(lose[epoch], slot)
        yield clean.run(table), lossy.run(table), lossy.bound()


def test_no_estimate_of_heavy_hitters_is_off_by_more_than_the_bound() -> None:
    """In whatever slots the losses were; those of local sketches do not show at all."""
    lose = {3: "global_sketch", 4: "local_sketch", 6: "global_sketch", 8: "local_sketch"}
    off = []
    for clean, lossy, now in both("hitters", 6_000.0, lose):
        estimates = [
            {(row["src"], row["dst"]): row["estimate"] for row in answer.to_pylist()}
            for answer in (clean, lossy)
        ]
        assert set(estimates[0]) <= set(estimates[1])
        rises = [estimates[1][key] - estimate for key, estimate in estimates[0].items()]
        off += rises
        told = next(one for one in now.operators if one.operator == "global_sketch")
        assert all(0 <= rise <= told.spent <= 6_000 for rise in rises)
        assert set(lossy["surplus"].to_pylist()) <= {told.spent // 1}
    assert max(off) > 0


def test_what_a_join_says_to_have_lost_is_the_bound() -> None:
    for _, lossy, now in both("join", 40.0, {2: "ripple_join", 5: "ripple_join"}):
        told = next(one for one in now.operators if one.operator == "ripple_join")
        assert lossy["lost"].to_pylist() == pytest.approx([told.spent])
    assert told.spent > 0


def test_no_listed_count_is_off_by_more_than_the_bound() -> None:
    off = []
    for clean, lossy, now in both(
        "top", 60.0, {3: "window_counts", 5: "top_k", 8: "window_counts"}
    ):
        counts = [
            dict(zip(a["key"].to_pylist(), a["n"].to_pylist(), strict=True)) for a in (clean, lossy)
        ]
        known = counts[0].keys() & counts[1].keys()
        off.append(sum(abs(counts[0][key] - counts[1][key]) for key in known))
        assert off[-1] <= now.spent <= now.promised == 60.0
    assert max(off) > 0


@pytest.mark.parametrize("name", ["hitters", "top", "jams", "join"])
def test_what_must_never_be_lost_cannot_be_by_too_large_a_budget(name: str) -> None:
    """Candidates, panes, incidents: one of them weighs 1e15, which a larger θ would let go."""
    stages, rows, _ = CASES[name]
    with pytest.raises(BadValueError, match="too large"):
        LocalPipeline(stages(), tolerance=Approximate(1e17)).run(rows()[0])
    LocalPipeline(stages(), tolerance=Approximate(math.inf)).run(rows()[0])


def test_compensation_is_never_more_than_the_bound() -> None:
    """A failure at θ = 0.4 has taken nothing of whole counters: to add 1 each time has no end."""
    for bound in (0.4, 0.999, 1.0, 250.5):
        lost = Loss(slot=0, epoch=3, backup_epoch=1, failures=1, bound=bound, theta=bound / 2)
        assert bound - 1 < compensation(lost) <= bound
