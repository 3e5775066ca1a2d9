"""The page that walks through the code names files that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_that_the_page_names_is_there():
    named = set(
        re.findall(r"`(src/tether/[\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text())
    )
    assert len(named) > 40
    assert {name for name in named if not (ROOT / name).is_file()} == set()


def test_every_package_is_in_its_table():
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    packages = {path.parent.name for path in (ROOT / "src/tether").glob("*/__init__.py")}
    assert sorted(named) == sorted(packages)
