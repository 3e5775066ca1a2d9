"""What of ``make chaos`` has run on this commit, so that it can go on where it stopped."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests import kills
from tests.chaos_summary import PROPERTY, lines

if TYPE_CHECKING:
    from pathlib import Path

FILE = kills.ROOT / ".truth" / "chaos.jsonl"


def name_of(nodeid: str) -> str:
    """A test without the seed at the end of its name.

    Example:
        >>> name_of("tests/chaos/test_matrix.py::test_cell[exact-kill-17]")
        'tests/chaos/test_matrix.py::test_cell[exact-kill]'
    """
    return re.sub(r"-\d+\]$", "]", nodeid)


class Progress:
    """Outcomes by test, of this commit.

    Args:
        file: Where they are kept, one to a line, as they come.
    """

    def __init__(self, file: Path = FILE) -> None:
        self._file, self._commit = file, kills.commit()
        self.cells: dict[str, tuple[str, Any]] = {}
        for line in file.read_text().splitlines() if file.exists() else []:
            one = json.loads(line)
            if one["commit"] == self._commit:
                self.cells[one["cell"]] = (one["outcome"], tuple(one["told"]))

    def passed(self, nodeid: str) -> bool:
        """Whether a test has passed on this commit, with whatever seed."""
        return self.cells.get(name_of(nodeid), ("",))[0] == "passed"

    def add(self, report: Any) -> None:
        """A test has ended."""
        told = dict(report.user_properties).get(PROPERTY)
        if told is None or report.outcome == "skipped":
            return
        cell = name_of(report.nodeid)
        self.cells[cell] = (report.outcome, tuple(told))
        self._file.parent.mkdir(exist_ok=True)
        entry = {"commit": self._commit, "cell": cell, "outcome": report.outcome, "told": told}
        with self._file.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def table(self) -> list[str]:
        """All that has run on this commit, now or before: policies by faults."""
        return [f"on {self._commit}, in this run and those before:", *lines([*self.cells.values()])]
