"""The two shell scripts work from any folder, also one with a space, and say what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import fakes

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
OLD = "exit 1"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    root = tmp_path / "a clone"
    (root / "scripts").mkdir(parents=True)
    for name in ("setup", "run"):
        shutil.copy(SCRIPTS / name, root / "scripts" / name)
    (root / "scripts" / "environment.py").write_text("import sys; print('building', *sys.argv[1:])")
    return root


def call(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def path_with(folder: Path, **pythons: str) -> str:
    """A PATH with these stand-ins for Python, and what a script needs."""
    for name, body in pythons.items():
        fakes.program(folder / name.replace("_", "."), body)
    for needed in ("dirname", "cat", "env"):
        (folder / needed).symlink_to(str(shutil.which(needed)))
    return str(folder)


NEW = f'exec "{sys.executable}" "$@"'


def test_setup_takes_the_first_python_that_is_new_enough(clone: Path, tmp_path: Path) -> None:
    path = path_with(tmp_path / "bin", python3_11=OLD, python3=OLD, python=NEW)
    done = call(clone / "scripts" / "setup", "--quiet", PATH=path)
    assert (done.returncode, done.stdout) == (0, "building --quiet\n")


def test_setup_takes_the_python_it_is_told(clone: Path, tmp_path: Path) -> None:
    path = path_with(tmp_path / "bin", python3_11='echo "the wrong one"')
    mine = fakes.program(tmp_path / "my own" / "python", NEW)
    done = call(clone / "scripts" / "setup", PATH=path, PYTHON=str(mine))
    assert (done.returncode, done.stdout) == (0, "building\n")


def test_setup_explains_when_there_is_none(clone: Path, tmp_path: Path) -> None:
    path = path_with(tmp_path / "bin", python3=OLD)
    done = call(clone / "scripts" / "setup", PATH=path)
    assert done.returncode == 1
    assert "no Python 3.11 or newer found" in done.stderr
    assert "make setup PYTHON=" in done.stderr


def test_run_gives_the_projects_python_and_java_and_loopback_only(clone: Path) -> None:
    venv = clone / ".venv"
    fakes.program(venv / "bin" / "show", 'env; printf "argument:%s\\n" "$@"; exit 3')
    (venv / "tether-env").write_text("JAVA_HOME='/opt/a java'\n")
    inherited = {"PATH": os.defpath, "SPARK_HOME": "other", "PYTHONPATH": "other"}
    done = call(clone / "scripts" / "run", "show", "a b", "", **inherited)
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    assert variables["JAVA_HOME"] == "/opt/a java"
    assert variables["PYSPARK_PYTHON"] == str(venv / "bin" / "python")
    assert variables["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert variables["PATH"].startswith(f"{venv / 'bin'}:")
    assert {"SPARK_HOME", "PYTHONPATH"}.isdisjoint(variables)
    assert lines[-2:] == ["argument:a b", "argument:"]


def test_run_before_setup_says_so(clone: Path) -> None:
    done = call(clone / "scripts" / "run", "anything", PATH=os.defpath)
    assert done.returncode == 1
    assert "make setup" in done.stderr
