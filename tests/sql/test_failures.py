"""What is lost with the memory stays within the bound; with Θ = 0, nothing is lost.

A query that ends as if it was killed loses its memory; what a real kill does is in test_kills.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.sql.queries import Batches, Run, write_batch, write_batches
from tests.sql.test_equality import some_batches

from tether.sql import Storyteller, bound, bounded, rewind
from tether.sql.checkpoint import describe_checkpoint
from tether.sql.settings import PREFIX, Bounded

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FORMATS = "spark.sql.streaming.stateStore.checkpointFormatVersion"
KEYS = 60


def many_keys(batches: int, start: int = 0) -> Batches:
    """Each batch changes 20 of 60 keys."""
    return [
        [(0, (7 * i + 20 * batch) % KEYS, i) for i in range(20)]
        for batch in range(start, start + batches)
    ]


def truth(batches: Batches) -> Counter[int]:
    return Counter({k: sum(v for b in batches for _, k2, v in b if k2 == k) for k in range(KEYS)})


def final_sums(run: Run) -> dict[int, int]:
    found: dict[int, int] = {}
    for batch in sorted(run.output):
        found |= {row[0]: row[1] for row in run.output[batch]}
    return found


def files(run: Run, pattern: str) -> list[Path]:
    return sorted((run.folder / "checkpoint" / "state").rglob(pattern))


def wrong_keys(run: Run, batches: Batches) -> int:
    """Keys whose sum is not the true one, after a last batch that shows all of them."""
    number = len(batches)
    everything = [(0, k, 0) for k in range(KEYS)]
    write_batch(run.folder / "a", number, everything)
    write_batch(run.folder / "b", number, everything)
    run.go(run.theta, killed=True)  # type: ignore[attr-defined]
    found = final_sums(run)
    return sum(found[k] != v for k, v in truth(batches).items())


@pytest.mark.parametrize(
    "kind",
    [
        "windows",
        pytest.param("outer join", marks=pytest.mark.long),
        pytest.param("sessions", marks=pytest.mark.long),
    ],
)
def test_with_no_error_allowed_restarts_change_nothing(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    batches = some_batches(3)
    theirs = Run(spark, kind, tmp_path / "spark")
    ours = Run(spark, kind, tmp_path / "tether")
    for run, theta in ((theirs, None), (ours, 0)):
        for number in (2, len(batches)):
            write_batches(run.folder, batches[:number])
            run.go(theta, killed=True)
    assert ours.output == theirs.output
    assert sum(ours.metric("tetherRestores")) > 0
    assert sum(ours.metric("tetherFailures")) == 0


@pytest.mark.parametrize("version", [pytest.param("1", marks=pytest.mark.long), "2"])
def test_a_loss_is_within_its_bound_and_counted(
    spark: SparkSession, tmp_path: Path, version: str
) -> None:
    spark.conf.set(FORMATS, version)
    batches = many_keys(5)
    run = Run(spark, "sums", tmp_path)
    run.theta = 120.0  # type: ignore[attr-defined]
    try:
        write_batches(tmp_path, batches[:3])
        run.go(120, killed=True)
        write_batches(tmp_path, batches)
        run.go(120, killed=True)
        wrong = wrong_keys(run, batches)
    finally:
        spark.conf.unset(FORMATS)
    spent, failures = run.metric("tetherBound")[-1], run.metric("tetherFailures")[-1]
    assert 0 < wrong <= spent <= 120
    assert failures >= 2
    thresholds = run.metric("tetherThreshold")
    assert thresholds[0] == 60
    assert thresholds[-1] < thresholds[0]  # halved by each loss
    assert all(d <= t for d, t in zip(run.metric("tetherDivergence"), thresholds, strict=True))


def test_a_batch_that_the_driver_did_not_commit_is_run_again_from_the_version_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = many_keys(3)
    run = Run(spark, "sums", tmp_path)
    run.theta = 0.0  # type: ignore[attr-defined]
    take = run.take

    def failing(rows: Any, batch: int) -> None:
        take(rows, batch)  # every task has committed its state by now
        if batch == 1:
            raise RuntimeError("the driver dies here")

    write_batches(tmp_path, batches)
    run.take = failing  # type: ignore[method-assign]
    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        run.go(0, killed=True)
    run.take = take  # type: ignore[method-assign]
    assert wrong_keys(run, batches) == 0


def test_an_unreadable_backup_is_passed_over_and_its_loss_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = many_keys(3)
    run = Run(spark, "sums", tmp_path)
    run.theta = 0.0  # type: ignore[attr-defined]
    write_batches(tmp_path, batches)
    run.go(0, killed=True)
    newest = files(run, "000000000003-*")
    assert newest
    for path in newest:
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 0xFF
        path.write_bytes(bytes(damaged))
    wrong = wrong_keys(run, batches)
    assert 0 < wrong <= run.metric("tetherBound")[-1]
    assert run.metric("tetherExtra")[-1] == run.metric("tetherBound")[-1]


def test_amounts_can_be_bounded_instead_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    batches = many_keys(4)
    run = Run(spark, "sums", tmp_path)
    write_batches(tmp_path, batches[:2])
    run.go(600, killed=True, divergence="l1", columns=["sum"])
    write_batches(tmp_path, batches)
    run.go(600, killed=True, divergence="l1", columns=["sum"])
    everything = [(0, k, 0) for k in range(KEYS)]
    write_batches(tmp_path, [*batches, everything])
    run.go(600, killed=True, divergence="l1", columns=["sum"])
    found = final_sums(run)
    error = sum(abs(found[k] - v) for k, v in truth(batches).items())
    assert 0 < error <= run.metric("tetherBound")[-1] <= 600


def test_columns_that_no_row_has_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path, many_keys(1))
    with pytest.raises(StreamingQueryException, match="No column of total is a number"):
        Run(spark, "sums", tmp_path).go(5, divergence="l1", columns=["total"])


def test_the_bound_and_story_of_a_running_query_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    story = Storyteller()
    spark.streams.addListener(story)
    write_batches(tmp_path, many_keys(2))
    run = Run(spark, "sums", tmp_path)
    with bounded(spark, max_state_error=400), Bounded(spark, {PREFIX + "lastBackup": "false"}):
        query = run.start()
    query.awaitTermination()
    (now,) = bound(query)
    assert now.spent == 0
    assert 0 < now.at_risk <= now.threshold == 200
    assert now.worst_now == now.at_risk
    write_batches(tmp_path, many_keys(3))
    run.go(400)
    deadline = time.monotonic() + 120
    # Spark tells it later; and perhaps what it had not yet told of queries before this one.
    while not (told := {e.what: e for e in story.events() if e.query == str(query.id)}).get("loss"):
        assert time.monotonic() < deadline, story.events()
        time.sleep(0.05)
    spark.streams.removeListener(story)
    restore = told["restore"]
    assert (restore.batch, restore.detail["restores"]) == (2, 2)


@pytest.mark.long
def test_a_rewind_makes_a_restart_exact_at_the_price_of_reading_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = many_keys(5)
    run = Run(spark, "sums", tmp_path)
    run.theta = 4000.0  # type: ignore[attr-defined]
    write_batches(tmp_path, batches)
    run.go(4000, killed=True, replay_every=2)
    found = rewind(str(tmp_path / "checkpoint"))
    assert (found.batch, found.batches_again) == (4, 1)
    assert wrong_keys(run, batches) == 0
    report = describe_checkpoint(str(tmp_path / "checkpoint"), verify=True)
    assert report.spent == 0
    assert [store.damage for store in report.stores] == [(), ()]


def test_windows_that_were_given_out_do_not_come_back_with_an_old_backup(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, "windows", tmp_path)
    # Each batch lies 30 s after the one before: it closes the windows of the last but one.
    batches = [[(30 * n + i, i % 5, 1) for i in range(10)] for n in range(6)]
    for number in (2, 4, 6):
        write_batches(tmp_path, batches[:number])
        run.go(10_000, killed=True)
    given = [(row[0].start, row[1]) for rows in run.output.values() for row in rows]
    assert len(given) > 20
    assert len(given) == len(set(given))
    assert run.metric("tetherFailures")[-1] > 0


@pytest.mark.long
def test_the_stores_of_a_join_come_back_at_one_version(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, "inner join", tmp_path)
    batches = [[(4 * n + i % 4, i % 5, i) for i in range(12)] for n in range(4)]
    for number in (3, 4):
        write_batches(tmp_path, batches[:number])
        run.go(400, killed=True)
    assert run.metric("tetherFailures")[-1] > 0
    stores: dict[tuple[int, int], set[int]] = {}
    for store in describe_checkpoint(str(tmp_path / "checkpoint")).stores:
        stores.setdefault((store.operator, store.partition), set()).add(store.newest_version)
    assert all(len(versions) == 1 for versions in stores.values())
    write_batches(tmp_path / "whole", batches)
    exact = Run(spark, "inner join", tmp_path / "whole").go()
    true = {row for rows in exact.output.values() for row in rows}
    assert {row for rows in run.output.values() for row in rows} <= true
