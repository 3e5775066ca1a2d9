"""Small programs that stand in for Java and Python, so that nothing real is started or fetched."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """\
Property settings:
    file.encoding = UTF-8
    java.home = {home}
    java.io.tmpdir = somewhere
    java.version = {version}
    java.version.date = 2025-04-15
    java.vm.name = OpenJDK 64-Bit Server VM

openjdk version "{version}" 2025-04-15
"""


def program(path: Path, body: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def java(home: Path, version: str, *, modules: str = "java.base jdk.incubator.vector") -> Path:
    """Make a Java home whose ``java`` tells this version and these modules; gives the home."""
    settings = shlex.quote(SETTINGS.format(home=home, version=version))
    body = f'case "$1" in --list-modules) echo {modules};; *) printf %s {settings} >&2;; esac'
    program(home / "bin" / "java", body)
    return home
