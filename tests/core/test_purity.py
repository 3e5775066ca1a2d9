"""The core reads no clock, draws no random numbers, and touches neither files nor Spark."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tether.core

ALLOWED = {
    "__future__",
    "collections",
    "dataclasses",
    "fractions",
    "functools",
    "hashlib",
    "itertools",
    "math",
    "msgspec",
    "numbers",
    "re",
    "typing",
}
FILES = sorted(Path(tether.core.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_pure_things_are_imported(path: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    outside = {name for name in found if not name.startswith("tether.core.")}
    assert {name.partition(".")[0] for name in outside} <= ALLOWED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_opened_or_printed(path: Path) -> None:
    called = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "exec", "eval", "__import__"}
