from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import tether.backup

MODULES = [
    "tether.backup." + module.name for module in pkgutil.iter_modules(tether.backup.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
