"""Kafka for real: a broker of our own, and SIGKILLs of it, of executors and of drivers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.spark.kafka_job import KafkaJob

from tether.testing.injector import Injector
from tether.testing.java_packages import UnreachableError
from tether.testing.kafka import broker_jars, connector_jars, running_broker

ROOT = Path(__file__).resolve().parents[2]
JARS = Path(os.environ.get("TETHER_KAFKA_JARS", Path.home() / ".cache" / "tether" / "kafka"))
ROWS, PAGES = 5_000, 40
APPROXIMATE = "approximate:max_state_error=1000"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def jars():
    try:
        connector_jars(JARS)
        broker_jars(JARS)
    except UnreachableError as error:
        pytest.skip(str(error))
    return JARS


@pytest.fixture
def broker(jars, tmp_path):
    with running_broker(tmp_path / "broker", jars) as running:
        running.create_topic("views")
        running.create_topic("counts")
        yield running


@pytest.fixture
def job(broker, jars, tmp_path):
    """Makes the job that counts; its policy and master are the test's."""
    work = tmp_path / "work"
    work.mkdir()
    connector = ",".join(map(str, connector_jars(jars)))
    return lambda policy, **more: KafkaJob(work, broker.address, connector, policy, **more)


def produce(broker, seed):
    """Views of pages, some much more often than others; gives how many of each."""
    chance = random.Random(seed)
    pages = [f"page-{min(chance.randrange(PAGES), chance.randrange(PAGES))}" for _ in range(ROWS)]
    broker.produce("views", pages)
    return Counter(pages)


def wrong_by(told, truth):
    return sum(abs(told["answer"].get(page, 0) - truth[page]) for page in truth | told["answer"])


def test_the_example_counts_right_though_the_broker_is_killed(jars):
    done = subprocess.run(
        [sys.executable, "examples/kafka_counts.py", "--jars", str(jars)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout[done.stdout.index("{") :])
    assert result["wrong_by"] == result["bound_now"] == 0
    assert result["rows"] == 24_000
    assert result["records_written"] >= result["pages"]


@pytest.mark.chaos
@pytest.mark.cluster
@pytest.mark.parametrize("policy", [APPROXIMATE, "barrier:interval=2epochs"])
def test_an_executor_is_killed_between_two_topics(broker, job, tmp_path, policy):
    truth = produce(broker, 1)
    injector = Injector(tmp_path / "strikes", seed=1)
    injector.at("halfway", "executor", slot=1, epoch=4)
    counting = job(policy, master="local-cluster[2,1,900]")
    told = counting.run(faults=injector.faults).result
    assert told is not None, counting.log()
    assert injector.struck()
    assert {"recovery", "rewound"} & set(told["what"])
    assert wrong_by(told, truth) <= told["spent"] <= (1000 if policy == APPROXIMATE else 0)


@pytest.mark.chaos
@pytest.mark.parametrize("policy", [APPROXIMATE, "barrier:interval=2epochs", "upstream-backup"])
def test_a_driver_is_killed_when_it_has_written_an_epoch(broker, job, tmp_path, policy):
    truth = produce(broker, 2)
    injector = Injector(tmp_path / "strikes", seed=2)
    injector.at("before-spark-commit", "kill", epoch=5)
    counting = job(policy)
    assert counting.run(faults=injector.faults).result is None
    assert injector.struck()
    told = counting.run().result
    assert told is not None, counting.log()
    assert wrong_by(told, truth) <= told["spent"] <= (1000 if policy == APPROXIMATE else 0)
    # The epoch's rows were written a second time, with the numbers of the first.
    assert told["written"] > told["once"]


@pytest.mark.chaos
@pytest.mark.parametrize("rewind", [False, True])
def test_a_plain_sql_query_whose_driver_is_killed(broker, job, rewind):
    truth = produce(broker, 3)
    counting = job("sql:60")
    assert counting.run(kill_at=7).result is None
    assert (counting.work / "struck").exists(), counting.log()
    told = counting.run(rewind=rewind).result
    assert told is not None, counting.log()
    wrong = sum(told["answer"].get(page, 0) != truth[page] for page in truth)
    assert wrong <= told["spent"] <= 60  # rows of state
    if rewind:
        assert (told["spent"], wrong) == (0, 0)
        assert told["again"] > 0


@pytest.mark.parametrize("policy", [APPROXIMATE, "barrier:interval=2epochs", "sql:60"])
def test_rows_that_the_topic_no_longer_has_are_told_and_not_passed_over(broker, job, policy):
    truth = produce(broker, 4)
    counting = job(policy)
    assert counting.run().result is not None, counting.log()
    read = broker.ends("views")
    produce(broker, 5)
    # What came while the query was down is gone; then more comes.
    gone = broker.ends("views")
    assert sum(gone.values()) - sum(read.values()) == ROWS
    broker.forget("views", gone)
    truth += produce(broker, 6)
    told = counting.run().result
    assert told is not None, counting.log()
    if policy.startswith("sql:"):
        assert "failOnDataLoss" in told["error"]["what"]
    else:
        assert "retention.ms" in told["error"]["do"]
    again = counting.run(fail_on_data_loss=False).result
    assert again is not None, counting.log()
    assert "error" not in again, again
    # Right for the rows that there are; nothing says how many are missing.
    assert wrong_by(again, truth) <= again["spent"]
