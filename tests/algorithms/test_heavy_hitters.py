from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether import Approximate, MiniBatch
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch
from tether.core.errors import BadValueError
from tether.core.windows import Hopping
from tether.data import packets
from tether.testing.local import LocalPipeline, Stage

KEY = ["src", "dst"]


def pipeline(
    threshold: float,
    tolerance: Any,
    *,
    value: str | None = "bytes",
    keyed: bool = False,
    width: int = 2_000,
    emit: str = "epoch",
) -> LocalPipeline:
    local = LocalSketch(
        KEY, value=value, threshold=threshold, spread_over=1 if keyed else 2, width=width
    )
    return LocalPipeline(
        [
            Stage(local, key=KEY if keyed else (), parallelism=2),
            Stage(GlobalSketch(threshold=threshold, width=width, emit=emit)),
        ],
        tolerance=tolerance,
    )


def true_sums(epochs: list[pa.Table], value: str | None = "bytes") -> dict[tuple[int, int], int]:
    rows = pa.concat_tables(epochs)
    folded = rows.group_by(KEY).aggregate([(value, "sum") if value else ([], "count_all")])
    return dict(zip(_keys(folded), folded[-1].to_pylist(), strict=True))


def _keys(rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(*(rows[name].to_pylist() for name in KEY), strict=True))


def found(answer: pa.Table) -> dict[tuple[int, int], int]:
    return dict(zip(_keys(answer), answer["estimate"].to_pylist(), strict=True))


def test_heavy_keys_are_found_with_estimates_at_or_above_their_sums() -> None:
    epochs = list(packets(4, 20_000, flows=5_000, seed=2))
    sums = true_sums(epochs)
    answer = found(pipeline(400_000, None).run_all(epochs)[-1])
    heavy = {key for key, total in sums.items() if total >= 400_000}
    assert heavy
    assert heavy <= set(answer)
    assert len(answer) <= 1.2 * len(heavy)
    assert all(estimate >= sums[key] for key, estimate in answer.items())


@pytest.mark.parametrize("keyed", [False, True])
def test_the_count_of_rows_is_a_value_too(keyed: bool) -> None:
    epochs = list(packets(2, 20_000, flows=5_000, seed=4))
    sums = true_sums(epochs, None)
    answer = found(pipeline(300, None, value=None, keyed=keyed).run_all(epochs)[-1])
    assert {key for key, total in sums.items() if total >= 300} <= set(answer)


KILLS = st.lists(
    st.tuples(st.integers(1, 11), st.sampled_from(["local_sketch", "global_sketch", "all"])),
    max_size=14,
)


@settings(max_examples=25)
@given(
    kills=KILLS,
    budget=st.sampled_from([500.0, 5_000.0, 60_000.0]),
    window=st.sampled_from([None, Hopping(4, "epochs")]),
    seed=st.integers(0, 3),
)
def test_no_heavy_key_is_missed_whatever_is_killed(
    kills: list[tuple[int, str]], budget: float, window: Hopping | None, seed: int
) -> None:
    threshold = 40_000
    epochs = list(packets(12, 600, flows=400, seed=seed))
    tested = pipeline(threshold, Approximate(budget, window=window), width=300)
    for number, rows in enumerate(epochs):
        for at, what in kills:
            if at != number:
                continue
            if what == "all":
                tested.lose_all()
            else:
                tested.lose(what, 0)
        answer = tested.run(rows)
        start = number - number % 4 if window else 0
        sums = true_sums(epochs[start : number + 1])
        heavy = {key for key, total in sums.items() if total >= threshold}
        assert heavy <= set(found(answer))
        assert all(found(answer)[key] >= sums.get(key, 0) for key in found(answer))
        # A hopping window's bound is its own; what is added is reported with it.
        surplus = set(answer["surplus"].to_pylist())
        assert all(0 <= added <= budget for added in surplus)


def test_kills_do_lose_something_that_is_compensated() -> None:
    epochs = list(packets(12, 600, flows=400, seed=1))
    tested = pipeline(40_000, Approximate(60_000.0), width=300)
    surpluses = []
    for number, rows in enumerate(epochs):
        if number in (3, 7):
            tested.lose_all()
        surpluses.append(max(tested.run(rows)["surplus"].to_pylist(), default=0))
    assert surpluses[2] == 0 < surpluses[3] < surpluses[7]


def test_an_exact_policy_gives_the_answer_of_a_run_without_failures() -> None:
    epochs = list(packets(8, 600, flows=400, seed=1))
    clean = pipeline(20_000, MiniBatch()).run_all(epochs)[-1]
    tested = pipeline(20_000, MiniBatch())
    for rows in epochs:
        if tested.epoch:
            tested.lose_all()
        answer = tested.run(rows)
    assert found(answer) == found(clean)


def test_hopping_windows_answer_each_for_itself() -> None:
    epochs = list(packets(8, 600, flows=100, seed=5))
    tested = pipeline(30_000, Approximate(1_000.0, window=Hopping(4, "epochs")), emit="window")
    answers = tested.run_all(epochs)
    assert [len(answer) > 0 for answer in answers] == [number % 4 == 3 for number in range(8)]
    sums = true_sums(epochs[4:])
    assert {key for key, total in sums.items() if total >= 30_000} <= set(found(answers[7]))
    assert all(estimate < 2 * sums[key] for key, estimate in found(answers[7]).items())


def test_local_losses_do_not_change_the_estimates() -> None:
    epochs = list(packets(6, 600, flows=400, seed=1))
    clean = found(pipeline(20_000, Approximate(50_000.0)).run_all(epochs)[-1])
    tested = pipeline(20_000, Approximate(50_000.0))
    for rows in epochs:
        if tested.epoch:
            tested.lose("local_sketch", 0)
            tested.lose("local_sketch", 1)
        answer = tested.run(rows)
    assert found(answer) == clean


class TestBadInput:
    def rows(self, **columns: Any) -> pa.Table:
        return pa.table({"src": [1], "dst": [2], "bytes": [3], **columns})

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"src": [1.5]}, "cannot be a key"),
            ({"bytes": [2.5]}, "cannot be added up"),
            ({"bytes": pa.array([None], pa.int64())}, "nulls"),
            ({"bytes": [-1]}, "negative"),
        ],
    )
    def test_wrong_rows_are_refused(self, columns: dict[str, Any], message: str) -> None:
        with pytest.raises(BadValueError, match=message):
            pipeline(100, None).run(self.rows(**columns))

    def test_a_missing_column_is_named(self) -> None:
        with pytest.raises(BadValueError, match="dst"):
            pipeline(100, None).run(pa.table({"src": [1], "bytes": [1]}))

    @pytest.mark.parametrize("threshold", [0, -1, float("nan"), float("inf")])
    def test_a_threshold_must_be_above_0(self, threshold: float) -> None:
        with pytest.raises(BadValueError, match="threshold"):
            GlobalSketch(threshold=threshold)

    def test_the_global_sketch_needs_local_ones(self) -> None:
        with pytest.raises(BadValueError, match="local sketches"):
            LocalPipeline([Stage(GlobalSketch(threshold=1))]).run(pa.table({"a": [1]}))

    def test_an_empty_epoch_changes_nothing(self) -> None:
        tested = pipeline(10, None)
        first = tested.run(self.rows(bytes=[30]))
        again = tested.run(self.rows().slice(0, 0))
        assert first.equals(again)


def test_real_packets(data: Any) -> None:
    rows = data.mawi_packets().rows
    tested = pipeline(20_000, Approximate(2_000.0), width=4_000)
    parts = [rows.slice(at, 1_000) for at in range(0, rows.num_rows, 1_000)]
    for number, part in enumerate(parts):
        if number % 3 == 2:
            tested.lose_all()
        answer = tested.run(part)
    sums = true_sums(parts)
    heavy = {key for key, total in sums.items() if total >= 20_000}
    assert heavy <= set(found(answer))
    assert len(found(answer)) <= 1.3 * len(heavy)
    assert np.median([found(answer)[key] / sums[key] for key in heavy]) < 1.3
