"""Reads the fenced code blocks out of a Markdown page."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
MARK = re.compile(r"^\s*<!--\s*not run\b(?P<reason>.*?)-->\s*$")

# Other spellings of a language that is run would be passed over in silence.
MISSPELT = {"py": "python", "python3": "python", "pycon": "python", "sh": "bash", "shell": "bash"}


class PageError(Exception):
    """A page that cannot be checked as it stands; says where and why."""


@dataclass(frozen=True)
class Block:
    """One code block.

    Attributes:
        language: First word after the opening fence; empty if there is none.
        code: Its lines, without the indent of a list that it stands in.
        line: Number of its first line of code in the page, from 1.
        not_run: The reason of a ``<!-- not run: reason -->`` right before it, if any.
    """

    language: str
    code: str
    line: int
    not_run: str | None


def read_blocks(text: str) -> list[Block]:
    """Give all blocks of a page in order; raise PageError on anything ambiguous."""
    lines = text.splitlines()
    blocks: list[Block] = []
    reason: str | None = None
    at = 0
    while at < len(lines):
        if mark := MARK.match(lines[at]):
            reason = _reason(mark["reason"], at)
        elif opening := FENCE.match(lines[at]):
            end = _closing(lines, at, opening["fence"])
            blocks.append(
                Block(
                    language=_language(opening["info"], at),
                    code=textwrap.dedent("\n".join(lines[at + 1 : end])),
                    line=at + 2,
                    not_run=reason,
                )
            )
            reason, at = None, end
        elif lines[at].strip() and reason is not None:
            raise PageError(f"line {at}: 'not run' stands before no code block")
        at += 1
    if reason is not None:
        raise PageError("'not run' at the end of the page stands before no code block")
    return blocks


def _reason(text: str, at: int) -> str:
    reason = text.removeprefix(":").strip()
    if not text.startswith(":") or not reason:
        raise PageError(f"line {at + 1}: write <!-- not run: reason -->, with the reason")
    return reason


def _language(info: str, at: int) -> str:
    words = info.replace("{", " ").split()
    language = words[0].lower() if words else ""
    if language in MISSPELT:
        raise PageError(f"line {at + 1}: call the block {MISSPELT[language]!r}, not {language!r}")
    return language


def _closing(lines: list[str], opened_at: int, fence: str) -> int:
    for at in range(opened_at + 1, len(lines)):
        line = lines[at].strip()
        if len(line) >= len(fence) and set(line) == {fence[0]}:
            return at
    raise PageError(f"line {opened_at + 1}: the code block is never closed")
