"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STARTS_SPARK = re.compile(r">>> .*(SparkSession|open_session)")


def examples() -> list[object]:
    """Each module with examples; those that would start Spark are marked so."""
    found = []
    for folder in ("src", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if ">>> " not in text:
                continue
            module = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            module = module.removesuffix(".__init__")
            marks = [pytest.mark.spark] if STARTS_SPARK.search(text) else []
            found.append(pytest.param(module, id=module, marks=marks))
    return found


@pytest.mark.parametrize("module", examples())
def test_examples_are_true(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
    assert results.attempted > 0, "the example stands where doctest does not look"
