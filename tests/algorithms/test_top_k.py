from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tether import Approximate, MiniBatch
from tether.algorithms.top_k import SliceCounts, TopK, WindowCounts, accuracy
from tether.core.errors import BadValueError
from tether.data import requests
from tether.testing.local import LocalPipeline, Stage


def pipeline(k: int, panes: int, tolerance: Any = None, pane: float = 1.0) -> LocalPipeline:
    return LocalPipeline(
        [
            Stage(SliceCounts("key", time="time", pane=pane), parallelism=2),
            Stage(WindowCounts(k=k, panes=panes), key=["key"], parallelism=2),
            Stage(TopK(k)),
        ],
        tolerance=tolerance,
    )


def plainly(epochs: list[pa.Table], k: int, panes: int, pane: float = 1.0) -> list[tuple[int, int]]:
    rows = [row for table in epochs for row in table.to_pylist() if row["time"] is not None]
    newest = max(int(row["time"] // pane) for row in rows)
    counts = Counter(row["key"] for row in rows if int(row["time"] // pane) > newest - panes)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:k]


def listed(answer: pa.Table) -> list[tuple[int, int]]:
    assert answer["rank"].to_pylist() == list(range(1, len(answer) + 1))
    return list(zip(answer["key"].to_pylist(), answer["n"].to_pylist(), strict=True))


def test_the_window_slides_by_panes() -> None:
    epochs = list(requests(12, 400, items=50, rate=400, drift=7, seed=2))
    tested = pipeline(5, 3)
    for number, rows in enumerate(epochs):
        assert listed(tested.run(rows)) == plainly(epochs[: number + 1], 5, 3)


@settings(max_examples=40)
@given(st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=12), max_size=8))
def test_any_stream_gives_the_plain_answer(epochs: list[list[tuple[int, int]]]) -> None:
    """Empty epochs, rows out of order, gaps of whole windows; one slot, so panes are one clock."""
    tested = LocalPipeline(
        [
            Stage(SliceCounts("key", time="time", pane=1.0)),
            Stage(WindowCounts(k=3, panes=3), key=["key"]),
            Stage(TopK(3)),
        ]
    )
    counts: Counter[tuple[int, int]] = Counter()
    newest, seen = -1, 0
    for rows in epochs:
        seen += len(rows)
        table = pa.table(
            {
                "key": pa.array([key for key, _ in rows], pa.int64()),
                "time": pa.array([float(time) for _, time in rows], pa.float64()),
            }
        )
        answer = listed(tested.run(table))
        newest = max([newest, *(time for _, time in rows)])
        # What was too late when it came is not in the window for good.
        counts.update((key, time) for key, time in rows if time > newest - 3)
        window: Counter[int] = Counter()
        for (key, time), n in counts.items():
            window[key] += n * (time > newest - 3)
        expected = sorted(((key, n) for key, n in window.items() if n), key=lambda x: (-x[1], x[0]))
        assert answer == expected[:3]


def test_a_slot_without_rows_of_its_own_is_told_the_time() -> None:
    tested = LocalPipeline(
        [
            Stage(SliceCounts("key", time="time", pane=1.0)),
            Stage(WindowCounts(k=9, panes=2), key=["key"], parallelism=4),
            Stage(TopK(9), feedback_to="window_counts"),
        ]
    )
    tested.run(pa.table({"key": list(range(20)), "time": [0.0] * 20}))
    for second in (1.0, 2.0, 3.0):
        answer = tested.run(pa.table({"key": [5], "time": [second]}))
    assert listed(answer) == [(5, 2)]


def test_dead_items_are_forgotten() -> None:
    tested = pipeline(3, 2)
    for number in range(6):
        keys = list(range(number * 10_000, (number + 1) * 10_000))
        tested.run(pa.table({"key": keys, "time": [float(number)] * 10_000}))
    held = sum(len(slot.state["counts"]) for slot in tested.stages["window_counts"].slots)  # type: ignore[arg-type]
    assert 20_000 <= held <= 45_000


def test_an_exact_policy_gives_the_answer_of_a_run_without_failures() -> None:
    epochs = list(requests(12, 400, items=50, rate=400, drift=7, seed=2))
    tested = pipeline(5, 3, MiniBatch())
    for number, rows in enumerate(epochs):
        if number:
            tested.lose_all()
        assert listed(tested.run(rows)) == plainly(epochs[: number + 1], 5, 3)


def test_after_losses_counts_are_wrong_by_no_more_than_the_bound() -> None:
    epochs = list(requests(20, 400, items=30, rate=400, drift=3, seed=4))
    budget = 300.0
    tested = pipeline(30, 4, Approximate(budget))
    errors = []
    for number, rows in enumerate(epochs):
        if number in (5, 6, 11, 16):
            tested.lose_all()
        answer, truth = dict(listed(tested.run(rows))), dict(plainly(epochs[: number + 1], 30, 4))
        errors.append(sum(abs(answer.get(k, 0) - truth.get(k, 0)) for k in answer | truth))
    assert max(errors[:5]) == 0
    assert 0 < max(errors) <= budget
    assert errors[-1] <= budget


def test_late_rows_and_rows_without_a_time_are_counted() -> None:
    tested = LocalPipeline(
        [
            Stage(SliceCounts("key", time="time", pane=1.0)),
            Stage(WindowCounts(k=3, panes=2), key=["key"]),
        ]
    )
    tested.run(pa.table({"key": [1, 2], "time": pa.array([9.0, None])}))
    answer = tested.run(pa.table({"key": [3, 4, 4], "time": [8.5, 7.9, 2.0]}))
    assert sum(answer["left_out"].to_pylist()) == 3
    assert sorted(answer["key"].to_pylist()) == [1, 3]


def test_accuracy_is_the_part_of_the_truth_that_is_there() -> None:
    assert accuracy([1, 2, 9], [1, 2, 3, 4]) == 0.5
    assert accuracy([], []) == 1.0


@pytest.mark.parametrize(("k", "panes"), [(0, 3), (3, 0)])
def test_nonsense_is_refused(k: int, panes: int) -> None:
    with pytest.raises(BadValueError):
        WindowCounts(k=k, panes=panes)


def test_the_window_insists_on_its_key() -> None:
    tested = LocalPipeline(
        [Stage(SliceCounts("key", time="time", pane=1.0)), Stage(WindowCounts(k=3, panes=2))]
    )
    with pytest.raises(BadValueError, match="key="):
        tested.run(pa.table({"key": [1], "time": [1.0]}))


def test_an_item_of_floats_is_refused() -> None:
    with pytest.raises(BadValueError, match="cannot be a key"):
        pipeline(3, 3).run(pa.table({"key": [1.5], "time": [1.0]}))
