"""Made-up results in the form of real ones, for tests of what is made of them."""

from __future__ import annotations

from typing import Any

KINDS = {
    "tether-operators": ("tether", "Tether operators", 500.0),
    "tether-store": ("tether", "Tether bounded store", 650.0),
    "spark-rocksdb": ("spark", "Spark RocksDB + changelog", 1_300.0),
    "spark-default": ("spark", "Spark default store", 600.0),
    "flink-table-hashmap": ("peer", "PyFlink Table API, HashMap, checkpoints", 1_600.0),
    "numpy": ("limit", "numpy + Arrow, one process", 90.0),
}


def result(
    contender: str, ms: float, *, rows: int = 1_000_000, scenario: str, **more: Any
) -> dict[str, Any]:
    kind, label, _ = KINDS[contender]
    return {
        "scenario": scenario,
        "kind": kind,
        "label": label,
        "contender": contender,
        "workload": {"rows": rows, **more},
        "repeats": 3,
        "median_ms": ms,
        "spread_ms": [0.9 * ms, 1.2 * ms],
        "runs_ms": [0.9 * ms, ms, 1.2 * ms],
        "answer_checked": True,
        "detail": {} if kind == "limit" else {"durable_bytes_per_row": ms / 100},
        "rows_per_epoch": rows,
        "rows_per_second": round(rows / ms * 1_000),
    }


ENVIRONMENT = {"cores": 2, "python": "3.11.7", "pyspark": "4.3.0", "seed": 1, "load_at_start": 0.2}


def peers() -> dict[str, Any]:
    plain = [result(one, KINDS[one][2], scenario="keyed sum, a few keys") for one in KINDS]
    several = [
        result(
            one, KINDS[one][2] * (0.2 + rows / 1e6), rows=rows, scenario=f"intervals, rows {rows}"
        )
        for one in KINDS
        for rows in (20_000, 200_000, 1_000_000)
        if one != "numpy"
    ]
    grown = [
        result(one, KINDS[one][2] * (1 + keys / 2e7), scenario=f"keyed sum, keys {keys}", keys=keys)
        for one in ("tether-operators", "spark-rocksdb")
        for keys in (100_000, 1_000_000, 10_000_000)
    ]
    slow = [result("tether-store", 700.0, scenario="slow store")]
    top = [result(one, KINDS[one][2] / 2, scenario="top-k") for one in KINDS]
    slow[0]["detail"]["requests_per_epoch"] = 12.5
    return {
        "experiment": "peers",
        "environment": ENVIRONMENT,
        "results": plain + several + grown + slow + top,
        "skipped": {"keyed sum, a few keys: bytewax": "Bytewax is not installed; do: make peers"},
        "goals": [
            {"id": "peers.met", "target": ">= 2", "value": 2.6, "met": True},
            {"id": "peers.lost", "target": ">= 1.7", "value": 1.2, "met": False},
            {"id": "peers.gone", "target": ">= 2", "value": None, "met": False, "why": "no Flink"},
        ],
        "command": "tether bench peers --seed 1",
        "quick": False,
    }


def thresholds() -> dict[str, Any]:
    rows = [("Θ = 10", 10.0, 4), ("Θ = 1000", 1_000.0, 310), ("Θ = 10000", 10_000.0, 0)]
    return {
        "experiment": "thresholds",
        "environment": ENVIRONMENT,
        "results": [
            {
                "contender": name,
                "median_ms": 400.0,
                "spread_ms": [390.0, 430.0],
                "answer_checked": True,
                "detail": {"bound": bound, "error_after_losing_all": error},
            }
            for name, bound, error in rows
        ],
        "goals": [],
    }


def recovery() -> dict[str, Any]:
    names = [("tether, 1,000,000 keys a slot", 900.0), ("spark: RocksDB, 1,000,000 keys", 1_900.0)]
    return {
        "experiment": "recovery",
        "environment": ENVIRONMENT,
        "results": [
            {"contender": name, "median_ms": ms, "spread_ms": [0.8 * ms, 1.3 * ms], "detail": {}}
            for name, ms in names
        ],
        "goals": [],
    }


def tolerance() -> dict[str, Any]:
    times = {"none": 400.0, "approximate": 412.0, "minibatch": 700.0, "upstream": 900.0}
    names = ("grep", "word count", "heavy hitters", "online join", "logistic regression")
    return {
        "experiment": "tolerance",
        "environment": ENVIRONMENT,
        "results": [
            {
                "contender": f"{name}: {policy}",
                "median_ms": ms,
                "spread_ms": [ms, ms],
                "detail": {},
                "kept": times["none"] / ms,
            }
            for name in names
            for policy, ms in times.items()
        ],
        "goals": [],
    }


def planning() -> dict[str, Any]:
    planners = ("structure-aware", "dynamic-programming", "greedy", "completeness")
    points = [
        {"planner": planner, "copies": copies, "predicted": copies / 9, "accuracy": copies / 10}
        for planner in planners
        for copies in (1, 4, 7)
    ]
    kinds = [f"{what}: {kind}" for what in ("workload", "slots", "links", "joins") for kind in "ab"]
    return {
        "experiment": "planning",
        "environment": ENVIRONMENT,
        "results": [],
        "goals": [],
        "figure_12_13": {"q1": points, "q1-spread": points, "q2": points},
        "figure_14": [
            {"specification": kind, "share": share, "structure-aware": share, "greedy": share / 2}
            for kind in kinds
            for share in (0.1, 0.5)
        ],
    }


def availability() -> dict[str, Any]:
    failures = [
        {
            "name": name,
            "behind": behind,
            "output": behind / 2 + at,
            "tentative": 1.0,
            "recovered": 8.0,
        }
        for at, name in enumerate(("active", "passive", "half"))
        for behind in (5, 15)
    ]
    costs = {"no copies": 200.0, "half copied": 260.0, "all copied": 310.0}
    return {
        "experiment": "availability",
        "environment": ENVIRONMENT,
        "results": [
            {
                "contender": name,
                "workload": {},
                "repeats": 1,
                "median_ms": ms,
                "spread_ms": [ms, ms],
                "runs_ms": [ms],
                "answer_checked": True,
                "detail": {},
            }
            for name, ms in costs.items()
        ],
        "goals": [],
        "failures": failures,
        "racks": [
            {"size": size, "nodes": nodes, "share": share, "fidelity": [1.0, share, 1.0]}
            for size, nodes, share in (
                ("paper", 35, 0.0),
                ("paper", 35, 0.5),
                ("thousand", 1_000, 0.5),
            )
        ],
    }


def reconcile() -> dict[str, Any]:
    """An input falls silent."""

    def run(**about: Any) -> dict[str, Any]:
        told = {"x": 3.0, "alpha_x": 2.25, "worst_delay_s": 2.5, "tentative_rows": 12_000}
        ways = {"failure": "process", "stabilization": "delay", "reconcile": "checkpoint"}
        sizes = {"seconds": 5, "rate": 1_500, "entries": 0, "reconcile_s": 1.5}
        return {**told, **ways, **sizes, **about}

    figures = {
        "figure_9": [run(failure=way, alpha_x=at) for way in ("process", "delay") for at in (1, 2)],
        "figure_11": [run(length=length) for length in (1, 2, 3)],
        "figure_12": [
            run(reconcile=way, entries=entries)
            for way in ("checkpoint", "undo")
            for entries in (0, 4_000_000)
        ],
    }
    return {
        "experiment": "reconcile",
        "environment": ENVIRONMENT,
        "results": [],
        "goals": [],
        "silences": [run(seconds=seconds) for seconds in (2, 6, 15)],
        "delay_by_bucket": [{"bucket_s": at, "mean_delay_ms": 300 * at} for at in (0.1, 0.5)],
        "figures": figures,
    }
