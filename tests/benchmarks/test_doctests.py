"""Examples in the docstrings of the harness are true."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ["inputs", "progress", "questions.top_k", "results", "scenario", "report.style"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"bench.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
