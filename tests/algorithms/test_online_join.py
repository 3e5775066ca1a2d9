from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tether import Approximate
from tether.algorithms.join_moments import Estimates, moments
from tether.algorithms.online_join import JoinEstimate, JoinSample, RippleJoin
from tether.core.errors import BadValueError
from tether.core.windows import Hopping
from tether.testing.local import LocalPipeline, Stage


def pipeline(rate: float, tolerance: Any = None, **sample: Any) -> LocalPipeline:
    options: dict[str, Any] = {"time": "time", "bucket": 10, "value": "bytes"} | sample
    return LocalPipeline(
        [
            Stage(JoinSample(["dst"], rate=rate, **options), parallelism=2),
            Stage(RippleJoin(rate=rate), key=["dst", "bucket"], parallelism=2),
            Stage(JoinEstimate(rate=rate)),
        ],
        tolerance=tolerance,
    )


def two_streams(epochs: int, rows: int, seed: int, keys: int = 300) -> list[pa.Table]:
    random = np.random.default_rng(seed)
    return [
        pa.table(
            {
                "dst": (keys * random.random(rows) ** 2).astype(np.int64),
                "time": epoch * 10 + 10 * random.random(rows),
                "bytes": random.integers(40, 1500, rows).astype(float),
                "is_left": random.random(rows) < 0.5,
            }
        )
        for epoch in range(epochs)
    ]


def nested_loops(tables: list[pa.Table]) -> tuple[int, float]:
    """COUNT and SUM, as slowly and plainly as can be."""
    right: Counter[tuple[int, int]] = Counter()
    rows = [row for table in tables for row in table.to_pylist() if row["dst"] is not None]
    for row in rows:
        right[row["dst"], int(row["time"] // 10)] += not row["is_left"]
    matches = [(row, right[row["dst"], int(row["time"] // 10)]) for row in rows if row["is_left"]]
    return sum(n for _, n in matches), sum(row["bytes"] * n for row, n in matches)


def by_bins(tables: list[pa.Table]) -> tuple[float, float]:
    """The same, faster, for rows without nulls."""
    rows = pa.concat_tables(tables)
    bins = rows["dst"].to_numpy() * 1_000 + (rows["time"].to_numpy() // 10).astype(int)
    left = rows["is_left"].to_numpy()
    right = np.bincount(bins, weights=~left)[bins]
    return float(right[left].sum()), float((rows["bytes"].to_numpy() * right)[left].sum())


def last(pipeline: LocalPipeline, tables: list[pa.Table]) -> dict[str, Any]:
    answer: dict[str, Any] = pipeline.run_all(tables)[-1].to_pylist()[0]
    return answer


def test_at_rate_1_the_join_is_exact() -> None:
    tables = two_streams(3, 2_000, seed=1)
    answer = last(pipeline(1.0), tables)
    count, total = nested_loops(tables)
    assert (count, total) == pytest.approx(by_bins(tables))
    assert answer["count"] == answer["count_low"] == answer["count_high"] == count
    assert answer["sum"] == pytest.approx(total)
    assert answer["avg"] == pytest.approx(total / count)


def test_intervals_hold_the_truth_at_the_stated_rate() -> None:
    random = np.random.default_rng(3)
    keys, rows, rate, runs = 3_000, 20_000, 0.1, 400
    left, right = (keys * random.random((2, rows)) ** 2).astype(int)
    value = random.integers(40, 1500, rows).astype(float)
    b = np.bincount(right, minlength=keys)
    count = float(b[left].sum())
    total = float((value * b[left]).sum())
    hits = np.zeros(3)
    estimates, variances = [], []
    for _ in range(runs):
        one, other = random.random(rows) < rate, random.random(rows) < rate
        sums = moments(
            np.bincount(left[one], minlength=keys),
            np.bincount(right[other], minlength=keys),
            np.bincount(left[one], weights=value[one], minlength=keys),
            np.bincount(left[one], weights=value[one] ** 2, minlength=keys),
            rate=rate,
        )
        variances.append(sums["var_count"])
        row = Estimates(sums | {"lost": 0.0, "left_out": 0.0}, rate, 0.95).row()
        estimates.append(row["count"][0])
        truths = {"count": count, "sum": total, "avg": total / count}
        hits += [
            row[f"{name}_low"][0] <= truth <= row[f"{name}_high"][0]
            for name, truth in truths.items()
        ]
    # 95 % of 400, less three standard deviations.
    assert (hits / runs >= 0.95 - 3 * 0.011).all(), hits / runs
    assert (hits / runs <= 0.99).all(), "the intervals are wider than they need be"
    assert np.mean(variances) == pytest.approx(np.var(estimates), rel=0.3)
    assert np.mean(estimates) == pytest.approx(count, rel=0.01)


def test_intervals_account_for_what_was_lost() -> None:
    hits, lost = [], []
    for seed in range(20):
        tables = two_streams(6, 3_000, seed)
        tested = pipeline(0.2, Approximate(1_200.0), seed=seed)
        for number, rows in enumerate(tables):
            if number in (2, 4, 5):
                tested.lose_all()
            answer = tested.run(rows).to_pylist()[0]
        count, total = by_bins(tables)
        lost.append(answer["lost"])
        hits.append(
            [
                answer["count_low"] <= count <= answer["count_high"],
                answer["sum_low"] <= total <= answer["sum_high"],
            ]
        )
    assert min(lost) > 0
    assert max(lost) <= 1_200
    assert np.mean(hits, axis=0).min() >= 0.8  # 95 % of 20, less three standard deviations


def test_what_was_lost_is_remembered_through_further_losses() -> None:
    tested = pipeline(0.5, Approximate(900.0))
    seen = []
    for number, rows in enumerate(two_streams(9, 1_000, seed=3)):
        if number in (3, 5, 7):
            tested.lose_all()
        seen.append(tested.run(rows).to_pylist()[0]["lost"])
    assert seen[2] == 0 < seen[3] < seen[5] < seen[7] <= 900
    assert seen == sorted(seen)


def test_a_hopping_window_begins_with_nothing_lost() -> None:
    tested = pipeline(0.5, Approximate(900.0, window=Hopping(4, "epochs")))
    tables = two_streams(8, 1_000, seed=3)
    for number, rows in enumerate(tables):
        if number == 2:
            tested.lose_all()
        answer = tested.run(rows).to_pylist()[0]
    assert answer["lost"] == 0
    count, _ = nested_loops(tables[4:])
    assert answer["count_low"] <= count <= answer["count_high"]


def test_slots_do_not_draw_alike_and_a_seed_repeats_itself() -> None:
    tables = two_streams(2, 4_000, seed=8)
    one, same, other = (last(pipeline(0.1, seed=seed), tables) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    assert abs(one["sampled"] - 800) < 5 * (800 * 0.9) ** 0.5


class TestBadInput:
    @pytest.mark.parametrize("side", [True, False])
    def test_an_empty_side_joins_nothing(self, side: bool) -> None:
        rows = two_streams(1, 500, seed=1)[0]
        rows = rows.filter(pa.compute.equal(rows["is_left"], side))
        answer = last(pipeline(0.5), [rows])
        assert (answer["count"], answer["count_low"], answer["count_high"]) == (0, 0, 0)
        assert answer["avg"] is None
        assert answer["sampled"] > 0

    def test_a_sample_without_a_pair_does_not_rule_pairs_out(self) -> None:
        rows = pa.table(
            {
                "dst": list(range(400)) * 2,
                "time": [1.0] * 800,
                "bytes": [1.0] * 800,
                "is_left": [True] * 400 + [False] * 400,
            }
        )
        answer = last(pipeline(0.02, seed=3), [rows])
        assert answer["count"] == 0
        assert answer["count_high"] >= 400

    def test_no_rows_at_all(self) -> None:
        answer = last(pipeline(0.5), [two_streams(1, 5, seed=1)[0].slice(0, 0)])
        assert answer["count"] == answer["count_high"] == answer["sampled"] == 0

    def test_late_rows_and_rows_without_a_time_are_counted(self) -> None:
        def rows(times: list[float | None]) -> pa.Table:
            count = len(times)
            return pa.table(
                {
                    "dst": [1] * count,
                    "time": pa.array(times, pa.float64()),
                    "bytes": [1.0] * count,
                    "is_left": [True] * count,
                }
            )

        tested = LocalPipeline(
            [
                Stage(JoinSample(["dst"], rate=1.0, time="time", bucket=10, max_lateness=30)),
                Stage(RippleJoin(rate=1.0), key=["dst", "bucket"]),
                Stage(JoinEstimate(rate=1.0)),
            ]
        )
        answer = last(tested, [rows([100.0, None, 101.0]), rows([71.5, 69.0, 99.0])])
        assert answer["left_out"] == 2
        assert answer["sampled"] == 4

    def test_null_keys_join_nothing_as_in_sql(self) -> None:
        rows = pa.table(
            {
                "dst": pa.array([None, None, 7, 7], pa.int64()),
                "time": [1.0] * 4,
                "bytes": [1.0] * 4,
                "is_left": [True, False, True, False],
            }
        )
        assert last(pipeline(1.0), [rows])["count"] == 1

    def test_a_null_value_on_the_left_is_left_out_and_counted(self) -> None:
        rows = pa.table(
            {
                "dst": [7, 7, 7],
                "time": [1.0] * 3,
                "bytes": pa.array([None, 2.0, None], pa.float64()),
                "is_left": [True, True, False],
            }
        )
        answer = last(pipeline(1.0), [rows])
        assert (answer["count"], answer["sum"], answer["left_out"]) == (1, 2.0, 1)

    def test_a_key_of_floats_is_refused(self) -> None:
        rows = two_streams(1, 5, seed=1)[0]
        rows = rows.set_column(0, "dst", pa.array(np.random.default_rng(1).random(5)))
        with pytest.raises(BadValueError, match="cannot be a key"):
            pipeline(1.0).run(rows)

    def test_the_join_insists_on_its_key(self) -> None:
        tested = LocalPipeline(
            [Stage(JoinSample(["dst"], rate=1.0, time="time")), Stage(RippleJoin(rate=1.0))]
        )
        with pytest.raises(BadValueError, match="bucket"):
            tested.run(two_streams(1, 5, seed=1)[0])

    @pytest.mark.parametrize("rate", [0, -0.1, 1.1, float("nan")])
    def test_a_rate_is_above_0_and_at_most_1(self, rate: float) -> None:
        with pytest.raises(BadValueError, match="sampling rate"):
            RippleJoin(rate=rate)

    def test_text_is_no_time(self) -> None:
        rows = two_streams(1, 5, seed=1)[0]
        rows = rows.set_column(1, "time", pa.array(["now"] * 5))
        with pytest.raises(BadValueError, match="time of type string"):
            pipeline(1.0).run(rows)
