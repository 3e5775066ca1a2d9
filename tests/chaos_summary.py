"""The table at the end of a run that has killed things: policies by faults, and seeds of red cells."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

PROPERTY = "chaos"
"""Name of the property by which a test tells (policy, fault, seed)."""


def lines(reports: list[tuple[str, Any]]) -> list[str]:
    """The table, from pairs of outcome ("passed" or "failed") and what the test told.

    Example:
        >>> told = [("passed", ("exact", "kill", 1)), ("failed", ("exact", "kill", 7))]
        >>> print("\\n".join(lines(told)))
        fault  exact
        kill   1/2 !
        red: exact, kill, seed 7
    """
    cells: dict[tuple[str, str], list[str]] = defaultdict(list)
    red = []
    for outcome, (policy, fault, seed) in reports:
        cells[fault, policy].append(outcome)
        if outcome != "passed":
            red.append(f"red: {policy}, {fault}, seed {seed}")
    policies = list(dict.fromkeys(policy for _, policy in cells))
    faults = list(dict.fromkeys(fault for fault, _ in cells))
    rows = [["fault", *policies]]
    for fault in faults:
        row = [fault]
        for policy in policies:
            found = cells.get((fault, policy), [])
            good = found.count("passed")
            row.append(f"{good}/{len(found)}{'' if good == len(found) else ' !'}" if found else "-")
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [*table, *red]


def told_by(stats: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    """Outcomes of the tests that told something, from pytest's own statistics."""
    return [
        (outcome, value)
        for outcome in ("passed", "failed")
        for report in stats.get(outcome, [])
        for name, value in getattr(report, "user_properties", [])
        if name == PROPERTY
    ]
