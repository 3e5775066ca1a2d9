"""What people and programs get to see of a simulation."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tether.cli.app import app
from tether.core.errors import BadValueError, TetherError
from tether.policies.approximate import Approximate
from tether.simulate import Scenario, World, simulate
from tether.simulate.plot import draw
from tether.simulate.report import summarise

from .test_mutations import CommitsBeforeTheBackup
from .test_theorems import adversarial, worst_moments

if TYPE_CHECKING:
    from pathlib import Path


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["simulate", *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_the_json_has_the_form_of_the_benchmarks() -> None:
    report = json.loads(run("--slots", "20", "--failures", "10", "--seed", "3", "--json"))
    assert report["experiment"] == "simulate"
    assert report["environment"]["seed"] == 3
    goals = {goal["id"]: goal for goal in report["goals"]}
    assert goals["simulate.seconds"]["target"] == "<= 60"
    assert goals["simulate.bound_violations"] == {
        "id": "simulate.bound_violations",
        "target": "<= 0",
        "value": 0,
        "met": True,
    }
    result = report["results"][0]
    assert result["workload"]["slots"] == 20
    assert sum(result["detail"]["faults"].values()) == 10


def test_people_get_a_table_and_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "losses.svg"
    shown = run("--slots", "20", "--failures", "10", "--plot", str(picture))
    assert "bound violations" in shown
    assert "20 slots, 10 faults" in shown
    ET.fromstring(picture.read_text(encoding="utf-8"))


def test_bad_options_get_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadValueError, match="cannot be shared"):
        run("--slots", "7", "--operators", "2")
    with pytest.raises(BadValueError, match="negative"):
        run("--slots", "4", "--max-state-error", "-1")
    with pytest.raises(TetherError, match="cannot be written"):
        run("--slots", "4", "--failures", "0", "--plot", str(tmp_path / "no" / "such.svg"))


def test_a_broken_promise_is_reported_and_the_goal_not_met() -> None:
    faults = worst_moments()
    world = World(adversarial((2000, 30, 30)), faults, CommitsBeforeTheBackup)
    world.run()
    report = summarise(world, faults, 1.0)
    assert report.violations
    assert not {goal["id"]: goal for goal in report.plain()["goals"]}["simulate.bound_violations"][
        "met"
    ]


def test_every_loss_is_drawn_and_none_is_no_trouble() -> None:
    report = simulate(Scenario(copies=6, policy=Approximate(300, 50, 50)), failures=12)
    root = ET.fromstring(draw(report))
    circles = [element for element in root.iter() if element.tag.endswith("circle")]
    assert len(circles) == report.losses > 0
    calm = simulate(Scenario(copies=1, policy=Approximate(300)))
    assert "circle" not in draw(calm)
