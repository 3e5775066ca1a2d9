from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from tether.core.errors import BadValueError
from tether.data import (
    click_log,
    dense_examples,
    incident_reports,
    locations,
    packets,
    requests,
    zipf_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

GENERATORS: list[Callable[..., Any]] = [zipf_text, packets, requests, dense_examples, click_log]


@pytest.mark.parametrize("generate", GENERATORS)
def test_a_seed_gives_the_same_rows_in_epochs_of_the_asked_size(generate: Any) -> None:
    once = list(generate(3, 50, seed=4))
    assert [table.num_rows for table in once] == [50] * 3
    assert once == list(generate(3, 50, seed=4))
    assert once != list(generate(3, 50, seed=5))
    assert once[0] != once[1]


@pytest.mark.parametrize("generate", GENERATORS)
def test_no_rows_are_refused(generate: Any) -> None:
    with pytest.raises(BadValueError, match="too few"):
        next(generate(1, 0))


def test_words_follow_zipf() -> None:
    lines = next(zipf_text(1, 5_000, words=1_000, skew=1.0))["value"].to_pylist()
    words = np.array([word for line in lines for word in line.split()])
    counts = np.sort(np.unique(words, return_counts=True)[1])[::-1]
    assert len(words) == 50_000
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.25)


def test_packets_are_of_real_sizes_and_in_time_order() -> None:
    table = pa.concat_tables(packets(2, 5_000, rate=1e4))
    sizes, times = table["bytes"].to_numpy(), table["time"].to_numpy()
    assert sizes.min() >= 40
    assert sizes.max() <= 1_500
    assert (np.diff(times) > 0).all()
    assert times[-1] == pytest.approx(1.0, abs=1e-3)


def test_labels_depend_on_the_features() -> None:
    table = next(dense_examples(1, 20_000, features=3, seed=2))
    label = table["label"].to_numpy()
    assert 0.4 < label.mean() < 0.6
    correlations = [np.corrcoef(table[f"x{at}"].to_numpy(), label)[0, 1] for at in range(3)]
    assert max(map(abs, correlations)) > 0.2


def test_clicks_are_as_many_as_asked() -> None:
    table = next(click_log(1, 20_000, users=1_000, ads=100, sites=50, clicks=0.2))
    assert 0.1 < table["label"].to_numpy().mean() < 0.35


def test_all_users_on_a_segment_report_its_incident() -> None:
    options: dict[str, Any] = {"seconds": 10, "users": 500, "segments": 20, "every": 2, "seed": 3}
    reports = next(incident_reports(1, **options))
    places = next(locations(1, rate=2_000, **options))
    assert set(reports["incident"].to_pylist()) == set(range(5))
    home = dict(zip(places["user"].to_pylist(), places["segment"].to_pylist(), strict=True))
    for incident in range(5):
        some = reports.filter(pa.compute.equal(reports["incident"], incident)).to_pylist()
        (segment,) = {row["segment"] for row in some}
        here = {user for user, place in home.items() if place == segment}
        assert here <= {row["user"] for row in some}


def test_some_incidents_slow_their_segment_down() -> None:
    table = next(locations(1, seconds=30, users=500, segments=20, rate=200, seed=3))
    speeds = table.group_by("segment").aggregate([("speed", "mean")])["speed_mean"].to_numpy()
    assert speeds.min() < 30
    assert speeds.max() > 55
