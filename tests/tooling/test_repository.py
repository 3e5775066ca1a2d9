"""Nothing of one person's machine is in the repository, and files stay short enough to read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 500
NOT_OURS = {".git", ".venv", "__pycache__", "dist", "build", "spark-warehouse"}

HOME_PATH = re.compile(r"(?<![\w.}*-])/(home|root|Users|work)/[\w.]")
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted|artifactory|sonatype|nexus[.-]|devpi|maven\.org|/maven2"
    r"|index-url[ =]+https?:",
    re.IGNORECASE,
)


def kept_files() -> list[Path]:
    """What git keeps, or would keep; without git, all files that are not a tool's."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        files = [ROOT / name for name in listed.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [
            path
            for path in ROOT.rglob("*")
            if not any(
                part in NOT_OURS or part.endswith("_cache") for part in path.relative_to(ROOT).parts
            )
        ]
    # This file names what it looks for.
    return [path for path in files if path.is_file() and path != Path(__file__).resolve()]


def lines_of(path: Path) -> list[str]:
    content = path.read_bytes()
    return [] if b"\0" in content else content.decode("utf-8", "replace").splitlines()


@pytest.mark.parametrize("pattern", [HOME_PATH, REGISTRY], ids=["home path", "registry"])
def test_no_file_names_a_place_of_one_machine(pattern: re.Pattern[str]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in kept_files()
        for number, line in enumerate(lines_of(path), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (HOME_PATH, "cd /home/me/x"),
        (HOME_PATH, "'/Users/me'"),
        (HOME_PATH, "file:///root/x"),
        (REGISTRY, "https://pypi.org/simple"),
        (REGISTRY, "https://repo.example/Artifactory/x"),
    ],
)
def test_such_a_place_would_be_found(pattern: re.Pattern[str], line: str) -> None:
    assert pattern.search(line)


def test_a_path_below_a_named_folder_is_no_home() -> None:
    assert not HOME_PATH.search("local-cluster writes below $SPARK_HOME/work/app")
    assert not HOME_PATH.search("docs/home/index")


def test_python_files_are_short() -> None:
    python = [path for path in kept_files() if path.suffix == ".py"]
    too_long = {str(path.relative_to(ROOT)): len(lines_of(path)) for path in python}
    assert {name: length for name, length in too_long.items() if length > LONGEST} == {}
