"""The report shows what is there, names what is not, and hides nothing that was lost."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from bench.report import plots_of, write_report
from bench.report.load import load
from bench.report.page import as_html, goal_rows, lost_rows, request_rows

from tether.core.errors import TetherError

from . import samples

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    kinds = (samples.peers, samples.thresholds, samples.recovery, samples.tolerance)
    for make in (*kinds, samples.planning, samples.availability, samples.reconcile):
        report = make()
        (folder / f"{report['experiment']}.json").write_text(json.dumps(report))
    return folder


def test_every_kind_of_picture_is_drawn_and_is_well_formed(folder: Path) -> None:
    plots = plots_of(load(folder, []))
    names = {plot.name for plot in plots}
    wanted = {"intervals", "bytes", "recovery", "bound", "growth", "speed-kept", "glance"}
    wanted |= {"throughput-0", "throughput-1"}
    wanted |= {"planning-accuracy", "planning-queries", "planning-random"}
    wanted |= {"availability-latency", "availability-racks", "availability-cost"}
    wanted |= {f"silence-{of}" for of in ("alpha", "length", "chain", "reconcile", "bucket")}
    assert wanted <= names
    for plot in plots:
        ET.fromstring(plot.svg)
        assert plot.command.startswith("tether bench")
        assert plot.caption.endswith(".")


def test_the_same_results_give_the_same_pictures(folder: Path) -> None:
    assert plots_of(load(folder, [])) == plots_of(load(folder, []))


def test_throughput_shows_every_contender_with_its_ratio(folder: Path) -> None:
    svg = next(plot.svg for plot in plots_of(load(folder, [])) if plot.name == "throughput-0")
    for _, label, _ in samples.KINDS.values():
        assert label in svg
    assert "2.60×" in svg  # 1300 ms against 500 ms
    assert "0.81×" in svg  # slower than the base: PyFlink


def test_goals_that_are_not_reached_come_first(folder: Path) -> None:
    states = [row[3] for row in goal_rows(load(folder, []))]
    assert states == ["not measured", "NOT met", "met"]


def test_whoever_is_faster_than_ours_is_named(folder: Path) -> None:
    rows = [row for row in lost_rows(load(folder, [])) if row[0] == "keyed sum, a few keys"]
    assert ["Tether bounded store", "Spark default store", "1.08×", "a peer"] in [
        row[1:] for row in rows
    ]
    assert ["Tether operators", "numpy + Arrow, one process"] in [row[1:3] for row in rows]


def test_requests_to_a_slow_store_are_told(folder: Path) -> None:
    rows = request_rows(load(folder, []))
    assert rows == [["slow store", "Tether bounded store", "12.5", "700"]]


def test_the_page_needs_nothing_beside_it(folder: Path, tmp_path: Path) -> None:
    html, markdown = write_report(folder, tmp_path, ["peers", "growth"])
    text = html.read_text()
    assert "<script" not in text
    assert "src=" not in text
    assert 'href="http' not in text
    assert "<code>tether bench growth</code>" in text  # named as missing
    assert "Bytewax is not installed" in text
    for line in markdown.read_text().splitlines():
        if line.startswith("!["):
            assert (tmp_path / line.partition("](")[2].rstrip(")")).is_file()


def test_text_from_results_is_escaped(folder: Path) -> None:
    measured = load(folder, [])
    measured.reports["peers"]["skipped"]["<b>x"] = "a < b & c"
    assert "&lt;b&gt;x" in as_html(measured, [])
    assert "a &lt; b &amp; c" in as_html(measured, [])


def test_the_long_form_counts_where_both_are_there(tmp_path: Path) -> None:
    for name, median in (("thresholds", 400.0), ("thresholds-quick", 1.0)):
        report = samples.thresholds()
        report["results"][0]["median_ms"] = median
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    (found,) = load(tmp_path, []).reports.values()
    assert found["results"][0]["median_ms"] == 400.0


def test_a_scenario_that_two_reports_have_is_drawn_once_from_the_long_form(tmp_path: Path) -> None:
    for name, quick, ms in (("peers", True, 1.0), ("peers-keyed-sum", False, 400.0)):
        report = samples.peers() | {"quick": quick}
        report["results"] = [
            samples.result("numpy", ms, scenario=scenario)
            for scenario in ("both", "short" if quick else "long")
        ]
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    found = [(one["scenario"], one["median_ms"]) for one in load(tmp_path, []).results("peers")]
    assert sorted(found) == [("both", 400.0), ("long", 400.0), ("short", 1.0)]


def test_ratios_are_to_what_a_user_would_write_where_no_store_can_be_asked(tmp_path: Path) -> None:
    report = samples.peers()
    report["results"] = [
        samples.result("tether-operators", 100.0, scenario="regression"),
        samples.result("spark-default", 250.0, scenario="regression")
        | {"contender": "spark-foreach-batch", "label": "Spark foreachBatch"},
    ]
    (tmp_path / "peers.json").write_text(json.dumps(report))
    (svg,) = (plot.svg for plot in plots_of(load(tmp_path, [])) if plot.name == "throughput-0")
    assert "2.50×" in svg
    assert "times Spark foreachBatch" in svg


def test_a_limit_that_dwarfs_all_others_is_cut_off(tmp_path: Path) -> None:
    report = samples.peers()
    report["results"] = [
        samples.result("tether-operators", 1_000.0, scenario="top-k"),
        samples.result("numpy", 4.0, scenario="top-k"),
    ]
    (tmp_path / "peers.json").write_text(json.dumps(report))
    (plot,) = (one for one in plots_of(load(tmp_path, [])) if one.name == "throughput-0")
    assert "≫ 250 M" in plot.svg
    assert "cut off" in plot.caption


def test_no_results_at_all_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TetherError, match="nothing to report"):
        write_report(tmp_path, tmp_path, [])
