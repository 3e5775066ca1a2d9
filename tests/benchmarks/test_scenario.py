"""Scenario files: all of ours are valid, and a bad value is told before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.scenario import Scenario, read_scenarios

from tether.core.errors import BadValueError

SCENARIOS = sorted((Path(__file__).resolve().parents[2] / "bench" / "scenarios").glob("*.toml"))
GOOD = 'name = "a"\nalgorithm = "keyed-sum"\ncontenders = ["numpy"]\nrows = 10\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
@pytest.mark.parametrize("quick", [False, True])
def test_our_scenarios_are_valid_and_quick_ones_are_smaller(path: Path, quick: bool) -> None:
    found = read_scenarios(path, quick=quick)
    whole = read_scenarios(path)
    assert len({one.name for one in found}) == len(found)
    assert sum(one.repeats * one.rows for one in found) <= sum(
        one.repeats * one.rows for one in whole
    )


def test_fields_have_defaults_and_epochs_add_up(tmp_path: Path) -> None:
    (found,) = read_scenarios(written(tmp_path, GOOD + "keys = 3_000_000\nepochs = 4\n"))
    assert (found.loading, found.uncounted, found.total_epochs) == (3, 5, 9)


def test_a_varied_field_makes_variants(tmp_path: Path) -> None:
    found = read_scenarios(written(tmp_path, GOOD + "[vary]\nrows = [1, 2]\n"))
    assert [(one.name, one.rows) for one in found] == [("a, rows 1", 1), ("a, rows 2", 2)]


def test_quick_changes_what_it_names(tmp_path: Path) -> None:
    path = written(
        tmp_path, GOOD + "[vary]\nrows = [1, 2]\n[quick]\nepochs = 3\nvary = {rows = [7]}\n"
    )
    (found,) = read_scenarios(path, quick=True)
    assert (found.rows, found.epochs) == (7, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("rows = 10", "rows = 0"), "rows"),
        (GOOD.replace("rows = 10", ""), "rows"),
        (GOOD.replace("keyed-sum", "sorting"), "sorting"),
        (GOOD.replace('["numpy"]', "[]"), "contenders"),
        (GOOD.replace('["numpy"]', '["numpy", "numpy"]'), "twice"),
        (GOOD + "rowz = 3\n", "rowz"),
        (GOOD + "budget = -1.0\n", "budget"),
        (GOOD + "budget = 'many'\n", "budget"),
        (GOOD + "keys = 5\ntouched = 6\n", "touched"),
        (GOOD + "store_latency = 60.0\n", "store_latency"),
        (GOOD + "[vary]\nrows = 5\n", "vary"),
        (GOOD + "[vary]\nrows = [1]\nkeys = [2]\n", "vary"),
        ("name = ", "TOML"),
    ],
)
def test_bad_values_get_clear_errors(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadValueError, match=said):
        read_scenarios(written(tmp_path, text))


def test_a_missing_file_names_those_that_are_there(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    with pytest.raises(BadValueError, match=r"some\.toml"):
        read_scenarios(tmp_path / "other.toml")


def test_infinity_can_be_written_as_json() -> None:
    scenario = Scenario(
        name="a", algorithm="keyed-sum", contenders=["numpy"], rows=1, budget=float("inf")
    )
    assert scenario.plain()["budget"] == "inf"
