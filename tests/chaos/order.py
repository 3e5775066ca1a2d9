"""In which order cells run: a run that stops early has seen a little of everything."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.chaos.matrix import Case


def spread(cases: Iterable[Case]) -> list[Case]:
    """Cells so that each next one shows most that few have shown: a policy, a fault, a point, a
    workload, and pairs of them."""
    left, seen, order = list(cases), Counter[tuple[str, ...]](), []
    while left:
        best = max(left, key=lambda case: sum(1 / (1 + seen[one]) for one in _shows(case)))
        left.remove(best)
        seen.update(_shows(best))
        order.append(best)
    return order


def _shows(case: Case) -> list[tuple[str, ...]]:
    parts = [
        f"policy {case.policy}",
        f"fault {case.fault}",
        f"point {case.point}",
        f"workload {case.workload}",
    ]
    return [*((part,) for part in parts), *combinations(parts, 2)]
