"""A checkpoint on ``s3a://``: a real S3-speaking server that throttles, and drivers that are killed."""

from __future__ import annotations

import itertools
import os
import uuid
from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from tests.jobs import run_job
from tests.sql.s3a_job import Order

from tether.sql.checkpoint import describe_checkpoint
from tether.testing.epochs import write_epochs
from tether.testing.injector import Injector
from tether.testing.java_packages import UnreachableError
from tether.testing.leftovers import Leftovers
from tether.testing.proxy import loopback_proxy
from tether.testing.s3a import s3a_jars, s3a_settings

JARS = Path(os.environ.get("TETHER_S3A_JARS", Path.home() / ".cache" / "tether" / "s3a"))
EPOCHS, ROWS, KEYS = 8, 200, 30


@pytest.fixture(scope="module")
def jars():
    try:
        return s3a_jars(JARS)
    except UnreachableError as error:
        pytest.skip(str(error))


def test_a_listing_from_before_is_not_taken_for_what_is_there_now(s3_options):
    place = f"backups/{uuid.uuid4().hex}"
    spark = fsspec.filesystem("s3", skip_instance_cache=True, **s3_options)  # another process's
    for batch in range(3):
        spark.pipe_file(f"{place}/offsets/{batch}", b"{}")
        spark.pipe_file(f"{place}/commits/{batch}", b"{}")
        spark.pipe_file(f"{place}/state/0/0/_metadata/schema", b"{}")
        assert describe_checkpoint(f"s3://{place}", **s3_options).last_batch == batch


@pytest.mark.long
@pytest.mark.chaos
@pytest.mark.parametrize(
    "policy", ["approximate:max_state_error=400", "barrier:interval=2epochs", "sql:20"]
)
def test_a_driver_whose_checkpoint_is_in_s3_is_killed(jars, s3_options, tmp_path, policy):
    draw = np.random.default_rng(1)
    tables = [
        pa.table({"k": draw.integers(0, KEYS, ROWS), "v": np.ones(ROWS, np.int64)})
        for _ in range(EPOCHS)
    ]
    write_epochs(tmp_path / "in", tables)
    truth = Counter(str(k) for table in tables for k in table["k"].to_pylist())
    injector = Injector(tmp_path / "strikes", seed=1)
    injector.at("before-spark-commit", "kill", epoch=4)
    plain = policy.startswith("sql:")
    turns = itertools.count()
    with loopback_proxy(s3_options["endpoint_url"]) as proxy:
        proxy.latency_seconds = 0.001
        # Nobody's first try is refused twice: clients try again, and are then heard.
        proxy.trouble = lambda _: "refuse" if next(turns) % 7 == 6 else None
        key, secret = s3_options["key"], s3_options["secret"]
        conf = s3a_settings(jars, proxy.url, key, secret)
        place = f"backups/{uuid.uuid4().hex}"
        order = Order(str(tmp_path), place, policy, conf)
        order.faults = [] if plain else injector.faults
        order.kill_at = 4 if plain else -1
        environment = {
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

        def lived():
            return run_job("tests.sql.s3a_job", order, tmp_path, Leftovers(), **environment).result

        first = lived()
        log = (tmp_path / "log").read_text()[-4000:]
        assert first is None
        assert (tmp_path / "struck").exists() if plain else injector.struck(), log
        told = lived()
        assert told is not None, (tmp_path / "log").read_text()[-4000:]
        assert proxy.seen["refuse"] > 20
    if plain:
        wrong = sum(told["answer"].get(k, 0) != n for k, n in truth.items())  # rows of state
        assert told["damage"] == []
        assert told["batches"][0] < told["batches"][1] == EPOCHS - 1
    else:
        wrong = sum(abs(told["answer"].get(k, 0) - n) for k, n in truth.items())
    assert wrong <= told["spent"] <= {"a": 400, "b": 0, "s": 20}[policy[0]]
