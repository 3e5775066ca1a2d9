"""No module imports itself by way of others. Imports for annotations alone do not count."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"


def modules() -> dict[str, Path]:
    found = {}
    for path in SOURCES.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(tree: ast.AST) -> list[str]:
    """What is imported when the module is: not in functions, not below TYPE_CHECKING."""
    names: list[str] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names += imported(node)
    return names


def graph_of(known: dict[str, Path]) -> dict[str, set[str]]:
    graph = {}
    for name, path in known.items():
        wanted = imported(ast.parse(path.read_text(encoding="utf-8")))
        owners = {one if one in known else one.rpartition(".")[0] for one in wanted}
        graph[name] = {one for one in owners if one in known and one != name}
    return graph


def test_no_module_imports_itself_by_way_of_others():
    graph = graph_of(modules())
    assert len(graph) > 300
    TopologicalSorter(graph).prepare()


def test_a_cycle_would_be_found(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.py").write_text(f"from {other} import x\n")
    with pytest.raises(CycleError):
        TopologicalSorter(
            graph_of({name: tmp_path / f"{name}.py" for name in ("a", "b")})
        ).prepare()
