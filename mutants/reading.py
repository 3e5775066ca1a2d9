"""The catalogue: files of faults, written like a patch without line numbers.

::

    @ name: why it is a fault
    core/thresholds.py
    -return after_failures(whole_share(budget, placement), 1)
    +return after_failures(whole_share(budget, placement), 0)

The lines with ``-`` stand in the file exactly once, whatever they are indented by; those with ``+`` take
their place. Where the file no longer has them, they are looked for in all others, so that code may move.
A line ``survives: …`` gives the reason why no test can notice.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CATALOGUE = Path(__file__).parent / "catalogue"


class CatalogueError(Exception):
    """The catalogue does not fit the code, or itself."""


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        name: Names it.
        why: What is wrong with it.
        file: Where it was when it was written down, below ``src/tether``.
        old: The lines that it replaces, without their common indentation.
        new: What stands there instead.
        survives: Why no test can notice; empty where one must.
    """

    name: str
    why: str
    file: str
    old: str
    new: str
    survives: str = ""


def catalogue(folder: Path = CATALOGUE) -> list[Mutant]:
    """All faults, in the order of files and lines.

    Raises:
        CatalogueError: Two have one name, or one cannot be read.
    """
    found = [mutant for file in sorted(folder.glob("*.txt")) for mutant in _read(file)]
    names = [mutant.name for mutant in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise CatalogueError(f"Two mutants have one name: {twice}.")
    return found


def _read(file: Path) -> Iterator[Mutant]:
    block: list[str] = []
    for line in [*file.read_text(encoding="utf-8").splitlines(), "@"]:
        if line.startswith("@"):
            if block:
                yield _parsed(block)
            block = [line]
        elif block and line.strip():
            block.append(line)


def _parsed(block: list[str]) -> Mutant:
    """One block of a catalogue.

    Example:
        >>> one = _parsed(["@ a: b", "x.py", "-    return 1", "+    return 2"])
        >>> one.name, one.why, one.old, one.new
        ('a', 'b', 'return 1', 'return 2')
    """
    name, colon, why = block[0].removeprefix("@").partition(":")
    words = [line for line in block[1:] if line[0] not in "+-"]
    reasons = [word.removeprefix("survives:").strip() for word in words if ":" in word]
    old = [line[1:] for line in block if line[0] == "-"]
    new = [line[1:] for line in block if line[0] == "+"]
    if not (colon and name.strip() and why.strip() and words and old) or old == new:
        raise CatalogueError(f"Not a mutant: {block[0]!r}.")
    indent = min(len(line) - len(line.lstrip()) for line in (*old, *new) if line.strip())
    return Mutant(
        name=name.strip(),
        why=why.strip(),
        file=words[0].strip(),
        old="\n".join(line[indent:] for line in old),
        new="\n".join(line[indent:] for line in new),
        survives=" ".join(reasons),
    )


def plant(mutant: Mutant, root: Path) -> tuple[Path, str]:
    """Where the fault goes below ``root``, and the file's text with it.

    Raises:
        CatalogueError: Its lines are nowhere, or at more than one place.
    """
    named = root / mutant.file
    files = [named, *(path for path in sorted(root.rglob("*.py")) if path != named)]
    for path in files:
        places = _places(mutant.old, path.read_text(encoding="utf-8")) if path.is_file() else []
        if len(places) > 1:
            raise CatalogueError(f"{mutant.name}: its lines stand {len(places)} times in {path}.")
        if places:
            return path, _planted(mutant, path.read_text(encoding="utf-8"), *places[0])
    raise CatalogueError(f"{mutant.name}: its lines are nowhere: {mutant.old!r}.")


def _places(old: str, text: str) -> list[tuple[int, str]]:
    """Line numbers and indentations at which lines stand in a text."""
    lines, wanted = text.split("\n"), old.split("\n")
    found = []
    for at in range(len(lines) - len(wanted) + 1):
        if not lines[at].endswith(wanted[0]):
            continue
        indent = lines[at][: len(lines[at]) - len(wanted[0])]
        there = "\n".join(lines[at : at + len(wanted)])
        if not indent.strip() and there == textwrap.indent(old, indent):
            found.append((at, indent))
    return found


def _planted(mutant: Mutant, text: str, at: int, indent: str) -> str:
    lines = text.split("\n")
    size = len(mutant.old.split("\n"))
    new = textwrap.indent(mutant.new, indent).split("\n") if mutant.new else []
    return "\n".join([*lines[:at], *new, *lines[at + size :]])
