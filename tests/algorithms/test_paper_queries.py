"""The paper's two queries, whole: in one process and on Spark, with slots that are lost."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tether.algorithms.paper_queries import as_stream, incident_steps, partitionings, top_k_steps
from tether.core.errors import BadValueError
from tether.data import incident_reports, locations
from tether.testing.epochs import read_epochs, write_epochs
from tether.testing.local import LocalPipeline, Stage


def local(steps) -> LocalPipeline:
    return LocalPipeline(
        [Stage(step.operator, step.key, step.slots, step.inputs) for step in steps]
    )


def requests(epochs: int) -> list[pa.Table]:
    random = np.random.default_rng(5)
    return [
        pa.table(
            {
                "time": 10.0 * epoch + 10 * np.sort(random.random(600)),
                "server": random.integers(0, 12, 600),
                "url": (random.pareto(1.0, 600) * 3).astype(np.int64) % 8,
            }
        )
        for epoch in range(epochs)
    ]


def plainly(epochs: list[pa.Table], k: int, servers=None) -> list[tuple[int, int]]:
    rows = pa.concat_tables(epochs[-6:]).to_pylist()
    counts = Counter(row["url"] for row in rows if servers is None or row["server"] in servers)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:k]


def listed(answer: pa.Table) -> list[tuple[int, int]]:
    return list(zip(answer["url"].to_pylist(), answer["n"].to_pylist(), strict=True))


def test_top_k_in_a_hierarchy_is_the_plain_answer() -> None:
    epochs, tested = requests(8), local(top_k_steps(k=8, slots=(4, 2)))
    for number, rows in enumerate(epochs):
        answer = listed(tested.run({"requests": rows}))
        assert answer == plainly(epochs[: number + 1], 8)


def test_without_a_slot_the_answer_lacks_just_its_rows() -> None:
    from tether.testing.local import slot_of

    epochs, tested = requests(8), local(top_k_steps(k=8, slots=(4, 2)))
    homes = slot_of(pa.table({"server": np.arange(12)}), ["server"], 4)
    tested.silence([("slice_counts", 1), ("window_counts", 0)])
    alive = {server for server in range(12) if homes[server] == 3}  # 0 and 2 lead to the lost slot
    for rows in epochs:
        answer = listed(tested.run({"requests": rows}))
    assert answer == plainly(epochs, 8, alive)
    silent = {(one["operator"], one["slot"]) for one in tested.slots()}
    assert ("window_counts", 0) not in silent
    tested.silence([])
    tested.run({"requests": epochs[0]})
    assert len(tested.slots()) == 4 + 2 + 1


def test_incidents_of_lost_segments_are_missing_and_no_others_come() -> None:
    options = {"users": 500, "segments": 20, "seed": 3}
    rows = list(
        zip(locations(12, rate=300, **options), incident_reports(12, **options), strict=True)
    )
    found = []
    for lost in ([], [("segment_speeds", 0)], [("distinct_incidents", 1)]):
        tested = local(incident_steps(window=60, slots=(4, 2)))
        tested.silence(lost)
        answers = [tested.run({"locations": a, "reports": b}) for a, b in rows]
        found.append({one for answer in answers for one in answer["incident"].to_pylist()})
    assert found[0] > found[1] > set()
    assert found[0] > found[2] > set()


def test_numbers_of_slots_that_do_not_divide_are_refused() -> None:
    for make in (top_k_steps, incident_steps):
        with pytest.raises(BadValueError, match="does not divide"):
            make(slots=(8, 3))


@pytest.mark.spark
def test_on_spark(spark, tmp_path) -> None:
    epochs = requests(3)
    write_epochs(tmp_path / "in", epochs)
    steps = top_k_steps(k=10, slots=(2, 1))
    schema = "time double, server bigint, url bigint"
    stream = as_stream(steps, {"requests": read_epochs(spark, tmp_path / "in", schema)})
    seen = {}

    def keep(df, epoch):
        seen[epoch] = [(row.url, row.n) for row in df.orderBy("rank").collect()]

    query = stream.start(keep)
    query.processAllAvailable()
    topology = query.topology(
        partitionings=partitionings(steps), folding=["slice_counts", "window_counts"]
    )
    query.stop()
    assert [seen[epoch] for epoch in range(3)] == [plainly(epochs[: at + 1], 10) for at in range(3)]
    assert sum(topology.node("slice_counts").rates) == 3 * 600
    assert topology.node("window_counts").rates is None
    rows = {
        "locations": spark.readStream.schema("segment long, time long, speed double").json(
            str(tmp_path)
        ),
        "reports": spark.readStream.schema("segment long, time long, incident long").json(
            str(tmp_path)
        ),
    }
    steps = incident_steps(slots=(4, 2))
    shape = as_stream(steps, rows).topology(
        {"segment_speeds": 1.0, "distinct_incidents": 1.0}, partitionings=partitionings(steps)
    )
    assert [(link.source, link.partitioning) for link in shape.links] == [
        ("segment_speeds", "merge"),
        ("distinct_incidents", "one-to-one"),
        ("jam_detector", "full"),
    ]
    assert shape.node("jam_detector").inputs == "correlated"
