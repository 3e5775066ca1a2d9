"""The Makefile explains itself and works in any folder; the full check leaves nothing out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROMISED = [
    "help",
    "setup",
    "demo",
    "test",
    "test-fast",
    "lint",
    "bench",
    "peers",
    "chaos",
    "kafka",
    "fuzz",
    "mutants",
    "soak",
    "wheel",
    "lock",
    "clean",
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "a clone"
    shutil.copytree(
        ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "Makefile", root)
    return root


def make(folder: Path, *arguments: str) -> str:
    # Inside `make test` the outer make's own variables would be taken over.
    variables = {
        k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "ARGS"))
    }
    done = subprocess.run(
        ["make", *arguments], cwd=folder, env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_make_alone_lists_every_target(clone: Path) -> None:
    listed = re.findall(r"^  make ([a-z-]+) +\S", make(clone), re.MULTILINE)
    assert listed == PROMISED


def test_every_target_is_phony() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    targets = re.findall(r"^([a-z][a-z-]*):(?!=)", MAKEFILE, re.MULTILINE)
    assert sorted(phony[1].split()) == sorted(targets)


@pytest.mark.parametrize(
    "target",
    ["demo", "test", "test-fast", "lint", "bench", "peers", "chaos", "fuzz", "soak", "wheel"],
)
def test_targets_set_up_what_they_need_and_pass_arguments(clone: Path, target: str) -> None:
    planned = make(clone, "--dry-run", target, "ARGS=--of-mine")
    assert planned.startswith("scripts/setup --quiet\n")
    if target != "lint":
        assert "--of-mine" in planned


def test_the_whole_suite_runs_unfiltered(clone: Path) -> None:
    planned = make(clone, "--dry-run", "test").splitlines()[-1]
    suite = ["PYTHONHASHSEED=0", "scripts/run", "python", "-m", "pytest"]
    assert planned.split() == [*suite, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


def test_random_examples_are_the_same_in_every_run_but_those_that_look_for_new_ones(
    clone: Path,
) -> None:
    assert settings.get_profile("same").derandomize
    assert not settings.get_profile("fresh").derandomize
    assert "--hypothesis-profile" not in make(clone, "--dry-run", "test")
    planned = make(clone, "--dry-run", "chaos", "SEED=7")
    assert "seed 7" in planned
    assert "TETHER_SEED=7" in planned
    assert "--hypothesis-profile=fresh --hypothesis-seed=7" in planned
    first, second = (make(clone, "--dry-run", "chaos") for _ in range(2))
    assert first != second


def test_the_full_check_is_lint_and_all_tests_and_stops_at_a_failure() -> None:
    check = ROOT / ".ci" / "run"
    assert os.access(check, os.X_OK)
    lines = [line for line in check.read_text(encoding="utf-8").splitlines() if line[:1] not in "#"]
    assert "set -euo pipefail" in lines
    assert lines[-2:] == ["make lint", "make test"]
