"""Which points of the protocols have seen a real SIGKILL, of whom, under which policy.

Tests tell it by a property, and the end of the test run writes it down for ``tether bench truth``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from mutants.commit import commit

from tether.chaos.faults import DRIVER_POINTS, DRIVER_STORE_POINTS, Point

if TYPE_CHECKING:
    from collections.abc import Iterable

PROPERTY = "killed"
"""Name of the property by which a test tells (where, policy, victim, point)."""
ROOT = Path(__file__).parents[1]
FILE = ROOT / ".truth" / "kills.json"
OF_DRIVER = (*DRIVER_POINTS, *DRIVER_STORE_POINTS)


def victims(point: str) -> tuple[str, ...]:
    """Who can be killed while somebody is at a point: a task's worker only where tasks come."""
    return ("executor", "driver") if point in OF_DRIVER else ("worker", "executor", "driver")


def report(told: Iterable[tuple[str, str, str, str]], before: dict[str, Any]) -> dict[str, Any]:
    """What is known of this commit, from what tests have told and what was known before.

    A point counts once all have been killed at it who can be.

    Example:
        >>> some = report([("in process", "barrier", "driver", "after-job")], {})
        >>> some["points"]["after-job"]["driver"], some["share"]
        ({'in process': ['barrier']}, 0.0)
    """
    now = commit()
    known = before.get("points", {}) if before.get("commit") == now else {}
    points: dict[str, dict[str, dict[str, set[str]]]] = {
        point: {victim: defaultdict(set) for victim in victims(point)} for point in get_args(Point)
    }
    for point, seen in known.items():
        for victim, places in seen.items():
            for where, policies in places.items():
                points[point][victim][where] |= set(policies)
    for where, policy, victim, point in told:
        points[point][victim][where].add(policy)
    killed = [point for point, seen in points.items() if all(seen.values())]
    return {
        "commit": now,
        "share": len(killed) / len(points),
        "missing": [point for point in points if point not in killed],
        "points": {
            point: {
                victim: {where: sorted(policies) for where, policies in places.items()}
                for victim, places in seen.items()
            }
            for point, seen in points.items()
        },
    }


def note(told: list[tuple[str, str, str, str]]) -> str:
    """Write it down, and say it in a line."""
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    known = report(told, before)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(known, indent=1), encoding="utf-8")
    missing = f"; not yet: {', '.join(known['missing'])}" if known["missing"] else ""
    return f"{known['share']:.0%} of the points saw a SIGKILL of all who can be there{missing}"


def told_by(stats: dict[str, list[Any]]) -> list[tuple[str, str, str, str]]:
    """What tests that passed have told, from pytest's own statistics."""
    return [
        tuple(value)
        for report in stats.get("passed", [])
        for name, value in getattr(report, "user_properties", [])
        if name == PROPERTY
    ]
