"""Contenders that need no Spark give the right answer; what is not installed is told."""

from __future__ import annotations

from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from bench import peers
from bench.contenders import CONTENDERS, find, one_process, other_systems
from bench.contenders.course import Course
from bench.harness import NotHere
from bench.inputs import digest_of
from bench.questions import QUESTIONS
from bench.questions.join import Join, Pairs
from bench.questions.regression import Regression
from bench.questions.top_k import TopK, Tops
from bench.scenario import Scenario, read_scenarios

from tether.algorithms.logistic_model import LogisticModel
from tether.core.errors import BadValueError
from tether.testing import slow_store

SCENARIOS = sorted((Path(__file__).resolve().parents[2] / "bench" / "scenarios").glob("*.toml"))
SMALL = {
    "keyed-sum": {"rows": 2_000, "keys": 700, "columns": 2, "distribution": "zipf", "skew": 1.2},
    "word-count": {"rows": 300, "keys": 200},
    "heavy-hitters": {"rows": 2_000, "keys": 900, "skew": 1.1},
    "top-k": {"rows": 2_000, "keys": 300, "k": 20, "panes": 3},
    "join": {"rows": 2_000, "keys": 300, "skew": 0.6},
    "logistic-regression": {"rows": 2_000, "columns": 5},
}


def no_spark() -> None:
    raise AssertionError("needs no Spark")


@pytest.fixture(scope="module", params=SMALL)
def course(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Course:
    scenario = Scenario(
        name="small",
        algorithm=request.param,
        contenders=["numpy"],
        epochs=3,
        seed=5,
        **SMALL[request.param],
    )
    return Course(scenario, tmp_path_factory.mktemp(request.param), no_spark)


@pytest.mark.parametrize(
    ("course", "contender"),
    [
        (algorithm, contender)
        for algorithm in SMALL
        for contender in ("numpy", "polars", "duckdb")
        if contender in CONTENDERS[algorithm]
    ],
    indirect=["course"],
)
def test_one_process_gives_the_right_answer(course: Course, contender: str) -> None:
    if contender != "numpy":
        pytest.importorskip(contender)
    measured = find(course.scenario.algorithm, contender)(course)
    assert measured.answer_checked
    assert min(measured.epoch_ms) > 0


def test_a_wrong_answer_is_seen() -> None:
    right = digest_of(pa.array([1, 2, 3]), [pa.array([10, 20, 30])])
    assert right != digest_of(pa.array([1, 2, 3]), [pa.array([20, 10, 30])])
    assert right != digest_of(pa.array([1, 2]), [pa.array([10, 50])])


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (Tops({4: [(2, 9), (0, 5)]}), True),
        (Tops({4: [(0, 5), (2, 9)]}), False),
        (Tops({4: [(2, 9), (3, 5)]}), False),
        (Tops({1: [(2, 9), (0, 5)]}), False),  # no answer for the newest windows
        (Tops({4: [(2, 10), (3, 5)]}, error=0.05), True),
        (Tops({4: [(2, 12), (3, 5)]}, error=0.05), False),
        (Tops({4: [(0, 5), (3, 4)]}, error=0.05), False),  # the most frequent one is missing
    ],
)
def test_a_wrong_top_k_is_seen(answer: Tops, right: bool) -> None:
    scenario = Scenario(name="a", algorithm="top-k", contenders=["numpy"], rows=20, keys=4, k=2)
    counts = np.array([5, 1, 9, 5])
    assert TopK(scenario).is_right(answer, [counts] * 5) is right


def test_a_wrong_join_is_seen() -> None:
    scenario = Scenario(name="a", algorithm="join", contenders=["numpy"], rows=20)
    question, truth = Join(scenario), Pairs(10, 200)
    assert question.is_right(Pairs(10, 200), truth)
    assert not question.is_right(Pairs(10, 201), truth)
    assert question.is_right(Pairs(12, 250, (9, 15)), truth)
    assert not question.is_right(Pairs(12, 250, (11, 15)), truth)


def test_a_model_that_has_learned_nothing_is_seen() -> None:
    scenario = Scenario(
        name="a", algorithm="logistic-regression", contenders=["numpy"], rows=500, columns=3
    )
    question = Regression(scenario)
    assert not question.is_right(LogisticModel(question.features), 0.9)


def test_the_smaller_course_has_its_share_of_rows_and_its_own_answer(course: Course) -> None:
    small = course.small
    assert small.scenario.rows == round(0.1 * course.scenario.rows)
    assert small.truth != course.truth
    assert find(small.scenario.algorithm, "numpy")(small).answer_checked


def test_uniform_epochs_touch_as_many_keys_as_they_should(tmp_path: Path) -> None:
    scenario = Scenario(
        name="a", algorithm="keyed-sum", contenders=["numpy"], rows=900, keys=500, touched=20
    )
    course = Course(scenario, tmp_path, no_spark)
    assert course.truth.keys == 500
    last = sorted(course.source.glob("*.parquet"))[-1]
    assert len(pa.parquet.read_table(last)["k"].unique()) == 20


def test_our_scenarios_name_contenders_that_there_are() -> None:
    for path in SCENARIOS:
        for scenario in read_scenarios(path):
            for name in scenario.contenders:
                assert name in CONTENDERS[scenario.algorithm]


def test_every_algorithm_has_a_question_contenders_and_a_scenario_that_runs_by_itself() -> None:
    first = [one for name in peers.FIRST for one in read_scenarios(peers.SCENARIOS / name)]
    assert {one.algorithm for one in first} == set(QUESTIONS) == set(CONTENDERS)


def test_an_unknown_contender_is_a_clear_error() -> None:
    with pytest.raises(BadValueError, match="spark-rocksdb"):
        find("keyed-sum", "storm")


def test_peers_that_are_not_installed_say_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scenario = Scenario(name="a", algorithm="keyed-sum", contenders=["numpy"], rows=10)
    course = Course(scenario, tmp_path, no_spark)
    monkeypatch.setattr(other_systems, "ROOT", tmp_path)
    with pytest.raises(NotHere, match=r"PyFlink is not installed in \.venv-flink; do: make peers"):
        find("keyed-sum", "flink-table-hashmap").run(course)
    with pytest.raises(NotHere, match="Bytewax is not installed"):
        other_systems.bytewax(course)
    with pytest.raises(NotHere, match="no_such_tool is not installed"):
        one_process.module("no_such_tool")


def test_the_slow_store_counts_one_request_for_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / "requests"
    monkeypatch.setenv(slow_store.REQUESTS, str(counter))
    monkeypatch.setenv(slow_store.LATENCY, "0")
    files, base = fsspec.core.url_to_fs(f"slow://{tmp_path}/store")
    assert isinstance(files, slow_store.SlowFiles)
    files.pipe_file(f"{base}/a/b", b"12", mode="create")
    with pytest.raises(FileExistsError):
        files.pipe_file(f"{base}/a/b", b"34", mode="create")
    assert files.cat_file(f"{base}/a/b") == b"12"
    assert list(files.find(base)) == [f"{base}/a/b"]
    files.rm_file(f"{base}/a/b")
    assert slow_store.requests(counter) == (5, 4)  # the put that was refused was sent, too
