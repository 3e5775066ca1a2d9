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
