"""Kafka for real: a broker of our own, killed with SIGKILL, between two of our queries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tether.testing.kafka import UnreachableError, broker_jars, connector_jars

ROOT = Path(__file__).resolve().parents[2]
JARS = Path(os.environ.get("TETHER_KAFKA_JARS", Path.home() / ".cache" / "tether" / "kafka"))


@pytest.fixture
def jars():
    try:
        connector_jars(JARS)
        broker_jars(JARS)
    except UnreachableError as error:
        pytest.skip(str(error))
    return JARS


@pytest.mark.long
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
