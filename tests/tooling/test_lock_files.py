"""The locked packages are pinned by hash, agree with each other, and name no place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>\S+)(?P<marker> ; .+)?$")
HASH = re.compile(r"^--hash=sha256:[0-9a-f]{64}$")


def entries(lock: Path) -> list[tuple[str, list[str]]]:
    """Each requirement of a lock with the options that follow it; comments are left out."""
    lines = [line.split("#", 1)[0] for line in lock.read_text(encoding="utf-8").splitlines()]
    joined = "\n".join(lines).replace("\\\n", "\x00")
    logical = [line.split("\x00") for line in joined.splitlines() if line.strip()]
    return [(first.strip(), [word.strip() for word in rest]) for first, *rest in logical]


def pins(lock: Path) -> dict[str, str]:
    found = (PIN.match(requirement) for requirement, _ in entries(lock))
    return {pin["name"]: pin["version"] for pin in found if pin}


def test_the_expected_locks_are_there() -> None:
    assert [lock.stem for lock in LOCKS] == ["bootstrap", "dev", "java", "runtime"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_package_is_pinned_with_hashes(lock: Path) -> None:
    for requirement, options in entries(lock):
        assert PIN.match(requirement), requirement
        assert options, f"{requirement} has no hash"
        assert all(HASH.match(option) for option in options), requirement


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_no_place_is_named(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index|--extra-index|--find-links)", text, re.MULTILINE)
    assert not re.search(r"(^|[\s@=])/", text, re.MULTILINE), "an absolute path"


def test_the_development_lock_is_the_runtime_lock_and_more() -> None:
    runtime, dev = pins(ROOT / "requirements/runtime.txt"), pins(ROOT / "requirements/dev.txt")
    assert runtime.items() <= dev.items()
    assert "pytest" in dev.keys() - runtime.keys()


def test_what_the_project_names_is_locked() -> None:
    """Someone who adds a package to pyproject.toml is told here to run ``make lock``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    extras = project["project"]["optional-dependencies"]
    for_users = [each for name in ("spark", "cli", "s3") for each in extras.pop(name)]
    named = {
        "runtime": [*project["project"]["dependencies"], *for_users],
        "dev": [*groups["test"], *groups["lint"], *(e for more in extras.values() for e in more)],
        "bootstrap": groups["bootstrap"],
        "java": groups["java"],
    }
    for lock, requirements in named.items():
        names = {re.split(r"[\[<>=!~; ]", each, maxsplit=1)[0].lower() for each in requirements}
        assert names <= pins(ROOT / f"requirements/{lock}.txt").keys(), f"{lock}: run make lock"
