"""Finds the commands of ours in a shell block of the documentation."""

from __future__ import annotations

import re
import shlex

OURS = ("make", "tether")
ASSIGNMENT = re.compile(r"^[A-Z_]+=")


def our_commands(code: str, *, prompts: bool) -> list[list[str]]:
    """Give each ``make ...`` and ``tether ...`` of a block as its words.

    With ``prompts`` only lines after a ``$`` are commands, the others are output.
    """
    found = []
    for line in code.replace("\\\n", " ").splitlines():
        typed = line.strip()
        if prompts:
            if not typed.startswith("$ "):
                continue
            typed = typed.removeprefix("$ ")
        found += [words for words in map(_bare, _simple_commands(typed)) if words]
    return found


def make_targets(makefile: str) -> set[str]:
    """Give the targets that a Makefile defines."""
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.MULTILINE))


def asked_targets(words: list[str]) -> list[str]:
    """Give the targets in a ``make`` command; options and variables are none."""
    return [word for word in words[1:] if not word.startswith("-") and "=" not in word]


def _simple_commands(line: str) -> list[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    commands: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|"):
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _bare(words: list[str]) -> list[str]:
    """Leave out what may stand before one of our commands; empty when it is not ours."""
    rest = list(words)
    while rest and (ASSIGNMENT.match(rest[0]) or rest[0] == "scripts/run"):
        del rest[0]
    if not rest:
        return []
    rest[0] = rest[0].removeprefix(".venv/bin/")
    return rest if rest[0] in OURS else []
