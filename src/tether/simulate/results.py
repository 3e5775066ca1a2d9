"""The form in which simulations report: that of the benchmarks."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

MOST_SECONDS = 60.0
"""What a simulation of 10,000 slots and 1,000 failures may take."""


def result_of(
    contender: str,
    workload: dict[str, Any],
    *,
    wall_ms: float,
    detail: dict[str, Any],
    violations: int,
    seed: int,
) -> dict[str, Any]:
    """One JSON object of the form that ``tether bench --json`` prints."""
    return {
        "experiment": "simulate",
        "environment": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("numpy", "pyarrow")},
            "seed": seed,
            "load_at_start": round(os.getloadavg()[0], 2),
        },
        "results": [
            {
                "contender": contender,
                "workload": workload,
                "repeats": 1,
                "median_ms": wall_ms,
                "spread_ms": [wall_ms] * 2,
                "answer_checked": True,
                "detail": detail,
            }
        ],
        "goals": [
            _goal("simulate.seconds", round(wall_ms / 1000, 2), MOST_SECONDS),
            _goal("simulate.bound_violations", violations, 0),
        ],
    }


def _goal(name: str, value: float, most: float) -> dict[str, Any]:
    return {"id": name, "target": f"<= {most:g}", "value": value, "met": value <= most}
