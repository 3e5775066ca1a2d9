from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tether import Approximate, MiniBatch
from tether.algorithms.incidents import (
    DistinctIncidents,
    JamDetector,
    JamReport,
    SegmentSpeeds,
)
from tether.algorithms.top_k import accuracy
from tether.core.errors import BadValueError
from tether.data import incident_reports, locations
from tether.testing.local import LocalPipeline, Stage

WORLD: dict[str, Any] = {"seconds": 10, "users": 2_000, "segments": 40, "every": 5, "seed": 2}
EPOCHS = 12


def streams() -> list[dict[str, pa.Table]]:
    speeds = locations(EPOCHS, rate=300, **WORLD)
    reports = incident_reports(EPOCHS, **WORLD)
    return [
        {"locations": one, "reports": other} for one, other in zip(speeds, reports, strict=True)
    ]


def pipeline(tolerance: Any = None) -> LocalPipeline:
    return LocalPipeline(
        [
            Stage(SegmentSpeeds(), inputs=["locations"], parallelism=2),
            Stage(DistinctIncidents(), inputs=["reports"], key=["incident"], parallelism=2),
            Stage(
                JamDetector(window=60, slide=10, jam_speed=30.0),
                inputs=["segment_speeds", "distinct_incidents"],
                key=["segment"],
                parallelism=2,
            ),
            Stage(JamReport()),
        ],
        tolerance=tolerance,
    )


def plainly(epochs: list[dict[str, pa.Table]]) -> dict[int, float]:
    """Incidents that cause jams, with the mean speed at which they were found; row by row."""
    speeds: dict[tuple[int, int], list[float]] = defaultdict(list)
    opened: dict[int, tuple[int, int]] = {}
    found: dict[int, float] = {}
    for number, epoch in enumerate(epochs):
        for row in epoch["locations"].to_pylist():
            speeds[row["segment"], row["time"] // 10].append(row["speed"])
        for row in epoch["reports"].to_pylist():
            opened.setdefault(row["incident"], (row["segment"], row["time"] // 10))
        for incident, (segment, since) in opened.items():
            steps = range(max(since, number - 5), number + 1)
            known = [speed for step in steps for speed in speeds[segment, step]]
            in_window = since > number - 6
            if in_window and incident not in found and known and np.mean(known) < 30.0:
                found[incident] = float(np.mean(known))
    return found


def test_incidents_that_cause_jams_are_found_once() -> None:
    epochs = streams()
    tested = pipeline()
    rows = [row for epoch in epochs for row in tested.run(epoch).to_pylist()]
    truth = plainly(epochs)
    assert 3 < len(truth) < EPOCHS * 2
    assert [row["incident"] for row in rows] == list(dict.fromkeys(row["incident"] for row in rows))
    assert {row["incident"]: row["speed"] for row in rows} == pytest.approx(truth)


def test_jams_are_counted_per_segment() -> None:
    tested = pipeline()
    counts: dict[int, int] = defaultdict(int)
    for epoch in streams():
        rows = tested.run(epoch).to_pylist()
        for row in rows:
            counts[row["segment"]] += 1
        assert all(row["jams"] == counts[row["segment"]] for row in rows)


@pytest.mark.parametrize(("tolerance", "least"), [(MiniBatch(), 1.0), (Approximate(400.0), 0.9)])
def test_losses_cost_little_accuracy_and_with_an_exact_policy_none(
    tolerance: Any, least: float
) -> None:
    epochs = streams()
    tested = pipeline(tolerance)
    found = set()
    for number, epoch in enumerate(epochs):
        if number in (3, 6, 9):
            tested.lose_all()
        found |= set(tested.run(epoch)["incident"].to_pylist())
    assert accuracy(found, plainly(epochs)) >= least


def test_an_empty_side_joins_nothing() -> None:
    epoch = streams()[0]
    for side in ("reports", "locations"):
        assert not len(pipeline().run({**epoch, side: epoch[side].slice(0, 0)}))


def test_rows_with_nulls_carry_no_speed() -> None:
    tested = LocalPipeline([Stage(SegmentSpeeds())])
    rows = pa.table(
        {
            "segment": pa.array([1, None, 1, 1], pa.int64()),
            "time": [1, 1, 1, 1],
            "speed": pa.array([10.0, 20.0, None, np.nan]),
        }
    )
    assert tested.run(rows).to_pylist()[0] | {"incident": None} == {
        "segment": 1,
        "time": 1,
        "incident": None,
        "speed": 10.0,
        "users": 1,
    }


def test_wrong_types_are_refused() -> None:
    with pytest.raises(BadValueError, match="segment"):
        LocalPipeline([Stage(SegmentSpeeds())]).run(
            pa.table({"segment": ["A7"], "time": [1], "speed": [1.0]})
        )
    with pytest.raises(BadValueError, match="incident"):
        LocalPipeline([Stage(DistinctIncidents())]).run(pa.table({"segment": [1], "time": [1]}))


def test_the_detector_insists_on_its_key() -> None:
    with pytest.raises(BadValueError, match="segment"):
        LocalPipeline([Stage(SegmentSpeeds()), Stage(JamDetector())]).run(
            pa.table({"segment": [1], "time": [1], "speed": [1.0]})
        )
