"""Which commit a result is about: what planted faults and kills have shown holds for that one alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
KILLERS = ROOT / "mutants" / "killers.json"
"""Which test noticed a fault last. It is asked first, so that a fault that is noticed takes seconds."""


def commit() -> str:
    """Name of the commit; ``-dirty`` at its end where files differ from it, other than the killers.

    These are no part of what is tried, and every try may note one.
    """
    changed = _git("status", "--porcelain", "--", ".", f":!{KILLERS.relative_to(ROOT)}")
    return _git("describe", "--always", "--abbrev=12", "--exclude=*") + (
        "-dirty" if changed else ""
    )


def _git(*command: str) -> str:
    told = subprocess.run(
        ["git", *command],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip()
