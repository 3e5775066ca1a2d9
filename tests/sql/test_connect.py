"""The page docs/connect.md, tried: a server of Spark Connect on loopback, and a client of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import tether.sql
from tether.spark.session import FAIR_CHECKPOINTS
from tether.testing.cluster import free_port
from tether.testing.processes import kill_all

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
LONGEST_SECONDS = 120


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server with the settings that a user is told to give it; its address."""
    port = free_port("127.0.0.1")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.checkpointFileManagerClass": FAIR_CHECKPOINTS,
        **tether.sql.server_settings(max_state_error=500),
    }
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2,4]"),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),  # what a client's function is taken apart from is found there
    }
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=environment
        )
    try:
        deadline = time.monotonic() + LONGEST_SECONDS
        while not is_open(port):
            assert process.poll() is None, (folder / "server.log").read_text()[-3000:]
            assert time.monotonic() < deadline, (folder / "server.log").read_text()[-3000:]
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill_all(process.pid)
        process.wait()


@pytest.mark.long
def test_what_the_page_says_of_a_client(tmp_path: Path) -> None:
    for package in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(package, reason="PySpark's Connect client is not installed")
    work = tmp_path / "work"
    work.mkdir()
    with connect_server(tmp_path) as address:
        done = subprocess.run(
            [sys.executable, "-m", "tests.sql.connect_client", address, str(work)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=2 * LONGEST_SECONDS,
            check=False,
        )
        said = (tmp_path / "server.log").read_text()[-3000:]
        assert done.returncode == 0, done.stderr[-3000:] + said
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["answer"] == {"ann": 30, "bob": 30, "eve": 30}
    assert told["for_each"] == [["ann", 3], ["bob", 3], ["eve", 3]]
    assert told["again"] == {"ann": 60, "bob": 60, "eve": 60}
    spent, at_risk, threshold = told["bound"]
    assert (spent, threshold) == (0, 500)
    assert 0 <= at_risk <= 3  # what the last batch reported: a client is not told what came after
    assert told["after_the_block"] == "500.0"  # the server's own
    assert told["state"] == 3
    assert told["stores"] == [2, 0]
    assert told["rewound"] == 0
    assert "restore" in told["story"] or "backup" in told["story"]
    assert "classic Spark session" in told["operators"][0]
    assert "tether.sql.server_settings" in told["operators"][1]
    assert "through Spark Connect" in told["overlapped"][0]
