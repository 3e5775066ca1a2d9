"""Planted faults: that the catalogue fits the code, and that one which survives is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mutants.reading import CatalogueError, Mutant, catalogue, plant
from mutants.results import known, note
from mutants.suites import SUITES, suite_of
from mutants.touching import asked_first
from mutants.trying import HANGS, NOTICED, tried

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


CODE = """\
LIMIT = 3

class Box:
    @property
    def size(self):
        return LIMIT

    def fill(self):
        def one():
            return 1
        return [one() for _ in range(LIMIT)]
"""


@pytest.mark.parametrize(
    ("old", "function"),
    [
        ("return LIMIT", "Box.size"),
        ("return 1", "Box.fill.<locals>.one"),
        ("[one()", "Box.fill"),
        ("LIMIT = 3", None),
    ],
)
def test_those_are_asked_first_that_come_to_the_function_with_the_fault(old, function):
    def coming_to(*names):
        return {"functions": [f"a.py:{name}" for name in names]}

    touched = {
        "slow": coming_to("Box.size", "Box.fill", "Box.fill.<locals>.one") | {"seconds": 2.0},
        "quick": coming_to(*([function] if function else [])) | {"seconds": 0.5},
        "another": {"functions": ["b.py:Box.size"], "seconds": 0.1},
    }
    found = asked_first(touched, "a.py", CODE, CODE.replace(old, f"{old[:-1]}9", 1))
    assert found == (["quick", "slow"] if function else [])


def test_what_a_test_noticed_holds_until_the_code_or_the_test_changes(tmp_path, monkeypatch):
    code, test = tmp_path / "src" / "a.py", tmp_path / "test_a.py"
    code.parent.mkdir()
    code.write_text("b()\n")
    test.write_text("def test_b(): ...\n")
    monkeypatch.setattr("mutants.results.KNOWN", tmp_path / "known.json")
    monkeypatch.setattr("mutants.results.SOURCES", code.parent)
    monkeypatch.setattr("mutants.results.ROOT", tmp_path)
    one = fault("b()", "c()")
    note(one, {"outcome": "noticed", "by": "test_a.py::test_b", "new": one.new})
    assert set(known([one])) == {"one"}
    assert known([fault("b()", "d()")]) == {}  # another fault by now
    test.write_text("def test_b(): pass\n")
    assert known([one]) == {}
    note(one, {"outcome": "survived", "by": "", "new": one.new})
    assert known([one]) == {}


def test_a_test_that_hangs_is_named_and_one_that_fails_too(tmp_path):
    """By work, not by the clock."""
    (tmp_path / "src" / "tether").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('noticed')\n"
    )
    (tmp_path / "test_one.py").write_text(
        "def test_well(): ...\ndef test_hangs():\n    while True: ...\n"
        "def test_fails(): assert False\n"
    )
    hung = tried(tmp_path, ["test_one.py"], 0.5)
    assert (hung.status, hung.failed) == (HANGS, "test_one.py::test_hangs")
    failed = tried(tmp_path, ["test_one.py::test_fails"], 60)
    assert (failed.status, failed.failed) == (NOTICED, "test_one.py::test_fails")
