"""``tether plan``: plans, curves and pictures of topology files and of queries; clear refusals."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from typer.testing import CliRunner

from tether.cli.app import app
from tether.core.errors import BadValueError, TetherError
from tether.planning import plan
from tether.planning.reading import topology_from

RUNNER = CliRunner()
OPERATORS = [
    {"name": "parse", "slots": 4, "rates": [9, 3, 2, 2]},
    {"name": "count", "slots": 2},
    {"name": "top"},
]
LINKS = [
    {"source": "parse", "target": "count", "partitioning": "merge"},
    {"source": "count", "target": "top"},
]
GOOD = {"operators": OPERATORS, "links": LINKS}
QUERY = """
import tether
from tether.algorithms.word_count import MergedCounts, PartialCounts


def stream(spark):
    lines = spark.readStream.format("text").load({folder!r})
    counted = tether.stream(lines).apply(PartialCounts(), parallelism=2)
    return counted.apply(MergedCounts(), key="word", parallelism=2)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(GOOD))
    return str(path)


def told(*words: str) -> dict:
    done = RUNNER.invoke(app, ["plan", *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout)


def test_the_plan_and_a_curve_for_each_planner(file):
    pytest.importorskip("highspy")
    found = told(file, "--copies", "4")
    best = plan(topology_from(GOOD), 4)
    assert found["plan"]["copied"] == {"parse": [0, 1], "count": [0], "top": [0]}
    assert found["plan"]["fidelity"] == best.fidelity == 0.75
    assert found["plan"]["bound"] == best.bound
    assert (found["slots"], found["smallest_tree"]) == (7, 3)
    curves = found["curves"]
    assert set(curves) == {"structure-aware", "greedy", "optimal", "dynamic-programming", "bound"}
    for points in curves.values():
        assert [copies for copies, _ in points] == list(range(8))
        assert points[-1][1] == pytest.approx(1.0)
    assert curves["optimal"] == curves["dynamic-programming"]


def test_planners_that_do_not_fit_are_left_out_with_the_reason(tmp_path):
    nodes = [{"name": name, "slots": 5, "rates": 1.0} for name in "abc"]
    links = [{"source": "a", "target": "b"}, {"source": "b", "target": "c"}]
    path = tmp_path / "wide.json"
    path.write_text(json.dumps({"operators": nodes, "links": links}))
    found = told(str(path), "--share", "0.6", "--points", "3")
    assert found["left_out"] == {
        "dynamic-programming": "125 complete trees; it tries all unions of them"
    }
    assert [copies for copies, _ in found["curves"]["greedy"]] == [0, 8, 15]
    assert told(str(path), "--points", "0")["curves"] == {}


def test_the_picture_shows_the_graph_its_copies_and_the_curves(file, tmp_path):
    picture = tmp_path / "plan.svg"
    found = told(file, "--copies", "4", "--svg", str(picture))
    whole = picture.read_text()
    svg = ET.fromstring(whole)
    name = "{http://www.w3.org/2000/svg}"
    circles = svg.findall(f"{name}circle")
    filled = [one for one in circles if one.get("fill") != "white"]
    assert (len(circles), len(filled)) == (7, 4)
    assert len(svg.findall(f"{name}line")) == 4 + 2  # substreams
    assert "parse: 2 of 4" in whole
    for planner in found["curves"]:
        assert f">{planner}<" in whole


def test_for_people(file):
    shown = RUNNER.invoke(app, ["plan", file, "--copies", "4"], catch_exceptions=False).stdout
    assert "4 copies for 7 slots" in shown
    assert "parse" in shown
    assert "0, 1" in shown


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ({"links": [*LINKS, {"source": "top", "target": "parse"}]}, [], "in a cycle"),
        ({"operators": [{"name": "parse", "slots": 4}, *OPERATORS[1:]]}, [], "has no rates"),
        (
            {"operators": [{"name": "parse", "slots": 4, "rates": -1}, *OPERATORS[1:]]},
            [],
            "is negative",
        ),
        ({"outputs": ["nobody"]}, [], "outputs names"),
        ({}, ["--copies", "2"], "smallest complete tree of the topology has 3 slots"),
        ({}, ["--copies", "2", "--share", "0.5"], "not both"),
        ({}, ["--planner", "magic"], "not known"),
        ({}, ["--planner", "full", "--copies", "4"], "does not fit"),
        ({}, ["--points", "1"], "no curve"),
        ({}, ["--rate", "parse=1"], "are for queries"),
        ({}, ["--svg", "/no/such/folder/a.svg"], "cannot be written"),
    ],
)
def test_clear_refusals(tmp_path, change, words, message):
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(TetherError) as caught:
        RUNNER.invoke(app, ["plan", str(path), *words], catch_exceptions=False)
    assert message in f"{caught.value.what} {caught.value.why}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such_module_of_anybody", "--rate", "a=1"], "cannot be loaded"),
        (["missing.py", "--rate", "a=1"], "cannot be loaded"),
        (["query.py"], "rates of the query are not known"),
        (["query.py", "--rate", "a=1", "--measure", "2"], "Two kinds"),
        (["query.py", "--rate", "a"], "not understood"),
        (["query.py", "--rate", "a=1", "--partitioning", "a=merge"], "not understood"),
        (["query.py:nothing", "--rate", "a=1"], "defines no 'nothing'"),
        (["query.py:number", "--rate", "a=1"], "is int, not a stream"),
        (["query.py", "--measure", "0"], "no number of epochs"),
    ],
)
def test_clear_refusals_of_queries(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "query.py").write_text("number = 1\n\ndef stream():\n    return number\n")
    with pytest.raises(BadValueError) as caught:
        RUNNER.invoke(app, ["plan", *words], catch_exceptions=False)
    assert message in f"{caught.value.what} {caught.value.why}"


@pytest.mark.spark
def test_a_query_with_given_and_with_measured_rates(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("a b c d e f g\n" * 50)
    module = tmp_path / "counting_query.py"
    module.write_text(QUERY.format(folder=str(tmp_path / "in")))
    given = told(str(module), "--rate", "partial_counts=300,100", "--copies", "2", "--points", "0")
    assert given["plan"]["copied"]["partial_counts"] == [0]
    assert given["plan"]["fidelity"] == pytest.approx(0.375)  # 3/4 of the words, half the slots
    ends = "partial_counts:merged_counts=one-to-one"
    narrow = told(
        *(str(module), "--rate", "partial_counts=300,100", "--partitioning", ends),
        *("--copies", "2", "--points", "0"),
    )
    assert narrow["plan"]["fidelity"] == pytest.approx(0.75)
    measured = told(str(module), "--measure", "1", "--share", "1", "--points", "0")
    counts, merged = (node["rates"] for node in measured["topology"]["operators"])
    assert sum(counts) == sum(merged) == 7  # words, each once an epoch, counted over their lines
    assert measured["plan"]["fidelity"] == pytest.approx(1.0)
