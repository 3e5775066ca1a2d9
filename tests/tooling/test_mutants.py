"""Planted faults: that the catalogue fits the code, and that one which survives is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mutants.reading import CatalogueError, Mutant, catalogue, plant
from mutants.suites import SUITES, suite_of

ROOT = Path(__file__).parents[2]


def test_every_fault_of_the_catalogue_fits_the_code():
    faults = catalogue()
    for fault in faults:
        path, text = plant(fault, ROOT / "src" / "tether")
        assert text != path.read_text()
        compile(text, str(path), "exec")
    assert len(faults) >= 150
    assert all(len(fault.why.split()) > 2 for fault in faults)


def test_every_test_that_is_to_notice_is_there():
    for tests in SUITES.values():
        assert [test for test in tests if not (ROOT / test).is_file()] == []
    assert suite_of("core/bound.py")[0] == "tests/core/test_bound.py"


def fault(old, new="pass", file="a.py"):
    return Mutant(name="one", why="it is wrong", file=file, old=old, new=new)


def test_lines_are_found_however_deep_they_stand_and_wherever_they_moved(tmp_path):
    (tmp_path / "b.py").write_text("if True:\n    if a:\n        b()\nc()\n")
    path, text = plant(fault("if a:\n    b()", "if not a:\n    b()"), tmp_path)
    assert path.name == "b.py"
    assert text == "if True:\n    if not a:\n        b()\nc()\n"


def test_lines_that_are_nowhere_or_twice_are_an_error(tmp_path):
    (tmp_path / "a.py").write_text("b()\nif a:\n    b()\n")
    with pytest.raises(CatalogueError, match="nowhere"):
        plant(fault("d()"), tmp_path)
    with pytest.raises(CatalogueError, match="2 times"):
        plant(fault("b()"), tmp_path)


def test_what_is_no_fault_is_refused(tmp_path):
    (tmp_path / "some.txt").write_text("@ one: it is wrong\na.py\n-b()\n+b()\n")
    with pytest.raises(CatalogueError, match="Not a mutant"):
        catalogue(tmp_path)
    (tmp_path / "some.txt").write_text("@ one: it is wrong\na.py\n-b()\n+c()\n" * 2)
    with pytest.raises(CatalogueError, match="one name"):
        catalogue(tmp_path)


def test_one_fault_is_planted_and_noticed():
    """In a copy of the tree, by the real thing."""
    command = [sys.executable, "-m", "mutants", "--only", "budget-alpha-forgotten", "--no-baseline"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "noticed  budget-alpha-forgotten by tests/core/" in done.stdout
