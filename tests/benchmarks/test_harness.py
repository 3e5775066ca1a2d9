"""Rounds are interleaved, medians are right, repeats are kept and found again, peers may be absent."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest
from bench.harness import Experiment, Goal, Measurement, NotHere
from bench.results import ResultLog, as_csv, save_report

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from pathlib import Path


class Runs:
    """Contenders that take what they are told to, and note their turns."""

    def __init__(self) -> None:
        self.turns: list[str] = []

    def __call__(self, name: str, times: list[float], rows: int | None = None):
        left = iter([times[0], *times])  # the first may be the warm-up

        def run() -> Measurement:
            self.turns.append(name)
            return Measurement([next(left)], answer_checked=True, rows=rows)

        return run


def absent() -> Measurement:
    raise NotHere("it is not installed; do: make peers")


def test_rounds_are_interleaved_and_begin_with_another() -> None:
    runs = Runs()
    experiment = Experiment("e", seed=1, repeats=2)
    experiment.measure({"a": runs("a", [1, 1]), "b": runs("b", [1, 1])})
    assert runs.turns == ["a", "a", "b", "b", "a"]


def test_median_spread_and_ratio_within_rounds() -> None:
    runs = Runs()
    experiment = Experiment("e", seed=1, repeats=3)
    experiment.measure({"a": runs("a", [10, 20, 40]), "b": runs("b", [99, 5, 10, 80])})
    # b's first value is the warm-up's place in the list, which only the first contender uses.
    (a, _) = experiment.report([], {})["results"]
    assert (a["median_ms"], a["spread_ms"], a["runs_ms"]) == (20, [10, 40], [10, 20, 40])


def test_contenders_with_other_numbers_of_rows_are_compared_per_row() -> None:
    runs = Runs()
    experiment = Experiment("e", seed=1, repeats=1)
    experiment.measure({"a": runs("a", [100.0], 1_000), "b": runs("b", [100.0], 100)})
    assert experiment.ratio("b", "a") == pytest.approx(10)
    results = experiment.report([], {})["results"]
    assert [one["rows_per_second"] for one in results] == [10_000, 1_000]


def test_a_wrong_answer_ends_the_experiment() -> None:
    experiment = Experiment("e", seed=1, repeats=1)
    with pytest.raises(AssertionError, match="wrong answer"):
        experiment.measure({"a": lambda: Measurement([1.0], answer_checked=False)})


def test_a_contender_that_is_not_here_is_left_out_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = Runs()
    experiment = Experiment("e", seed=1, repeats=2)
    experiment.measure({"flink": absent, "a": runs("a", [1, 1])})
    report = experiment.report([experiment.goal("e.ratio", ">=", 2, "flink", "a")], {})
    assert [one["contender"] for one in report["results"]] == ["a"]
    assert report["skipped"] == {"flink": "it is not installed; do: make peers"}
    (goal,) = report["goals"]
    assert (goal["value"], goal["met"]) == (None, False)
    assert "make peers" in goal["why"]
    assert capsys.readouterr().err.count("leaving out flink: it is not installed") == 1


def test_a_goal_on_something_that_was_not_run_says_so() -> None:
    goal = Experiment("e", seed=1, repeats=1).goal("e.x", "<=", 3, "a", "b")
    assert goal.plain()["why"].startswith("a was not measured")
    assert Goal("g", "<=", 3, 2.0).plain()["met"]


def test_progress_tells_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs()
    Experiment("e", seed=1, repeats=2).measure({"a": runs("a", [1, 1]), "b": runs("b", [1, 1])})
    assert "4 of 4, about 0 s left" in capsys.readouterr().err


def test_a_resumed_experiment_runs_only_what_is_missing(tmp_path: Path) -> None:
    path, identity = tmp_path / "log.jsonl", {"rows": 3}
    first = Experiment("e", seed=1, repeats=1, log=ResultLog(path, identity, resume=False))
    first.measure({"a": Runs()("a", [7.0]), "b": Runs()("b", [8.0])})
    with path.open("a", encoding="utf-8") as log:
        log.write('{"contender": "a", "rou')  # killed while writing
    runs = Runs()
    log = ResultLog(path, identity, resume=True)
    second = Experiment("e", seed=1, repeats=2, log=log)
    second.measure({"a": runs("a", [1.0, 2.0]), "b": runs("b", [1.0, 2.0])})
    assert sorted(runs.turns) == ["a", "a", "b"]  # a warm-up, and the second round
    assert [run.median_ms for run in second.runs["a"]] == [7.0, 1.0]
    third = Experiment("e", seed=1, repeats=2, log=ResultLog(path, identity, resume=True))
    third.measure({"a": absent, "b": absent})  # nothing is left to run
    assert [run.median_ms for run in third.runs["b"]] == [8.0, 1.0]
    fourth = Experiment("e", seed=1, repeats=2, log=ResultLog(path, identity, resume=True))
    assert fourth.recall("a", "b")
    assert fourth.runs == third.runs
    assert not fourth.recall("a", "c")


def test_results_of_another_scenario_are_not_taken(tmp_path: Path) -> None:
    ResultLog(tmp_path / "log", {"rows": 3}, resume=False)
    with pytest.raises(BadValueError, match="another scenario"):
        ResultLog(tmp_path / "log", {"rows": 4}, resume=True)


def test_a_report_is_saved_as_json_and_csv(tmp_path: Path) -> None:
    runs = Runs()
    experiment = Experiment("e", seed=1, repeats=2)
    experiment.measure({"a": runs("a", [10.0, 20.0], 100)})
    report = experiment.report([], {})
    path = save_report(report, quick=True, folder=tmp_path)
    assert path.name == "e-quick.json"
    assert json.loads(path.read_text())["quick"] is True
    rows = list(csv.DictReader(io.StringIO(path.with_suffix(".csv").read_text())))
    assert [row["rows_per_second"] for row in rows] == ["10000", "5000"]
    assert as_csv({"experiment": "x", "results": [{"contender": "a"}]}).count("\n") == 2
