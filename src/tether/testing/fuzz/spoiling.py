"""Spoiling a backup directory while nobody uses it: what disks, copies and people do."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tether.testing.fuzz.program import Event


def spoil(work: Path, event: Event) -> bool:
    """Damage a file, and remove the arenas, so that the file is needed; whether there was one."""
    for arena in (work / "arena").glob("tether-*/*"):
        shutil.rmtree(arena, ignore_errors=True)
    assert event.damage is not None
    how, what = event.damage.split("-")
    if what.startswith("commit"):
        # One copy of the log is enough to go on with; so half of the time both are damaged alike.
        names = ("commits.log", "commits.copy")
        spoiled = [work / "backup" / name for name in names[: 1 + int(event.place * 100) % 2]]
    else:
        frames = sorted((work / "backup" / "slots").rglob("*.log"))
        spoiled = frames and [frames[int(event.place * 1000) % len(frames)]]
    spoiled = [file for file in spoiled if file.exists() and file.stat().st_size]
    for file in spoiled:
        _damage(file, how, event.place)
    return bool(spoiled)


def _damage(file: Path, how: str, place: float) -> None:
    at = int(place * (file.stat().st_size - 1))
    file.chmod(0o600)
    if how == "cut":
        os.truncate(file, at)
        return
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)
