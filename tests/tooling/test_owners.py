"""Nobody assigns the fields of an object that belongs to another one: its owner is told instead."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[2] / "src" / "tether"
PACKAGES = ("policies", "protocols", "engine", "spark", "local", "observe")
OURS_BY_DESIGN = {
    # A record of the same module, which is only a part of its owner.
    ("engine/slot/heap.py", "self._kept"),
    ("engine/query/feedback_box.py", "self._senders[operator.name]"),
    ("observe/failures.py", "self._failures[-1]"),
    # A property that stores what it is given.
    ("engine/slot/resident.py", "self.state"),
    ("engine/slot/residents.py", "self.arena"),
    # Spark's accumulators are set so.
    ("spark/tasks/statuses.py", "self._newest"),
}


def assigned_to(tree: ast.AST) -> Iterator[str]:
    """Every object of an object, of which a field is assigned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            each = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            for one in each:
                if isinstance(one, ast.Attribute) and not isinstance(one.value, ast.Name):
                    yield ast.unparse(one.value)


def test_fields_are_assigned_by_their_owner():
    found = {
        (path.relative_to(SOURCES).as_posix(), owner)
        for package in PACKAGES
        for path in (SOURCES / package).rglob("*.py")
        for owner in assigned_to(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == OURS_BY_DESIGN


def test_an_assignment_from_outside_would_be_found():
    code = "self.x = 1\nself.other.x, y = 1, 2\nself.other.x += 1\nother.x = 1\n"
    assert list(assigned_to(ast.parse(code))) == ["self.other", "self.other"]
