"""Which tests come to which function: those are asked first whether they notice a fault in it.

The run without faults notes it. What tests do in processes of their own is not seen here; so where no
test that comes to a function notices, all that could notice are run.
"""

from __future__ import annotations

import ast
import json
import sys
import threading
import time
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MOST, MOST_SECONDS = 40, 30.0
"""So many tests, and such that take so long together, are asked before all others; quick ones first."""


class Touching:
    """A plugin of a test run: notes each test's time, and the functions that it comes to.

    Args:
        note: The file for it.
        sources: The folder with the code that counts.
    """

    def __init__(self, note: Path, sources: Path) -> None:
        self._note, self._sources = note, f"{sources}/"
        self._seconds: dict[str, float] = defaultdict(float)
        self._functions: dict[str, set[str]] = defaultdict(set)
        self._now: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch one test with all that is made for it."""
        test = plain(item.nodeid)
        self._now, began = self._functions[test], time.perf_counter()
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self._seconds[test] += time.perf_counter() - began

    def _called(self, frame: Any, event: str, arg: Any) -> None:
        del event, arg  # only calls come here: nobody asks for lines
        code = frame.f_code
        if code.co_filename.startswith(self._sources):
            self._now.add(f"{code.co_filename[len(self._sources) :]}:{code.co_qualname}")

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        tests = {
            test: {"seconds": round(seconds, 3), "functions": sorted(self._functions[test])}
            for test, seconds in self._seconds.items()
        }
        self._note.write_text(json.dumps(tests))


def plain(nodeid: str) -> str:
    """A test's name without its parameters.

    Example:
        >>> plain("tests/core/test_bound.py::test_one[a-1]")
        'tests/core/test_bound.py::test_one'
    """
    return nodeid.split("[", maxsplit=1)[0]


def asked_first(
    touched: Mapping[str, Mapping[str, Any]], file: str, honest: str, planted: str
) -> list[str]:
    """Tests that come to where a fault is.

    Args:
        touched: What a run without faults has noted.
        file: Where the fault is, below the sources.
        honest: The file's text without it.
        planted: The file's text with it.
    """
    where = _first_difference(honest, planted)
    functions = {f"{file}:{name}" for name in _functions_at(ast.parse(honest), where)}
    seconds = {
        test: float(one["seconds"])
        for test, one in touched.items()
        if functions & set(one["functions"])
    }
    quick = sorted(seconds, key=lambda test: seconds[test])[:MOST]
    together = accumulate(seconds[test] for test in quick)
    return [test for test, so_far in zip(quick, together, strict=True) if so_far <= MOST_SECONDS]


def _first_difference(one: str, other: str) -> int:
    """Number of the first line that differs."""
    pairs = zip(one.split("\n"), other.split("\n"), strict=False)
    return next((at for at, (a, b) in enumerate(pairs, 1) if a != b), 1)


def _functions_at(tree: ast.AST, line: int, inside: str = "") -> Iterator[str]:
    """The innermost function that a line is in, by its qualified name; nothing outside of all."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            if getattr(node, "lineno", line) <= line <= (getattr(node, "end_lineno", line) or line):
                yield from _functions_at(node, line, inside)
            continue
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        if not first <= line <= (node.end_lineno or first):
            continue
        name = inside + node.name
        is_class = isinstance(node, ast.ClassDef)
        inner = list(_functions_at(node, line, f"{name}." if is_class else f"{name}.<locals>."))
        yield from inner or ([] if is_class else [name])
