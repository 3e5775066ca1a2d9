"""A silent input under operators with state, on Spark: a query behind a query, and replicas of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.sources.samples import Written

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.core.errors import BadValueError, QueryRefusedError
from tether.producer import Producer
from tether.sources.exchange.files import read_file
from tether.sources.exchange.log import ExchangeAddress
from tether.sources.exchange.view import rows_between
from tether.testing.gateways import gateway
from tether.testing.proxy import loopback_proxy

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
PATIENCE = 240.0
"""Seconds until something that must happen is taken never to."""


class Inputs:
    """Two inputs of values, a bucket of ten at a time."""

    def __init__(self, work: Path) -> None:
        self.paths = [str(work / f"x{number}") for number in range(2)]
        self.written = [Written(path) for path in self.paths]
        for each in self.written:
            each.writer._clock = time.time
        self.sent = [0, 0]

    def send(self, *numbers: int) -> None:
        for number in numbers:
            at = self.sent[number]
            self.sent[number] += 1
            first = 10 * at
            # All rows of a bucket have one key and time: so has their count, however they come.
            rows = [(first, first)] * (number + 2)
            self.written[number].add(at, rows, boundary=first + 10)


def wait_for(what: Any, *queries: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        for query in queries:
            if query.exception() is not None:
                raise query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stable_rows(path: str, columns: list[str]) -> list[tuple[Any, ...]]:
    """The stable rows of an exchange, in its order."""
    log = ExchangeAddress(url=path).open()
    found = []
    for wanted in rows_between(log.entries(0), -(2**60), 2**60, tentative=False):
        table, _ = read_file(log.folder, wanted, columns)
        found += list(zip(*(table[name].to_pylist() for name in columns), strict=True))
    return found


def kinds(path: str) -> Counter[str]:
    if ExchangeAddress(url=path).open().about() is None:
        return Counter()
    entries = ExchangeAddress(url=path).open().entries(0)
    return Counter(entry.kind for entry in entries if entry.rows or entry.undo)


def test_a_query_behind_a_query(spark: Any, tmp_path: Path) -> None:
    """Failures and corrections travel down: what the second query tells is corrected in turn."""
    inputs = Inputs(tmp_path)
    policies = [tether.Available(delay=1.0), tether.Available(delay=1.0, reconcile="undo")]

    def begin(number: int, paths: list[str], output: Any) -> Any:
        rows = tether.subscribe(
            spark, paths, reader=f"q{number}", bucket=10, tolerance=policies[number]
        )
        if number == 1:
            rows = rows.selectExpr("v", "count AS n")
        operator = KeyedAggregate() if number == 0 else KeyedAggregate({"total": "n"}, count=None)
        return (
            tether.stream(rows)
            .apply(operator, key="v", parallelism=1)
            .start(
                output,
                tolerance=policies[number],
                backup=str(tmp_path / f"backup{number}"),
                checkpoint=str(tmp_path / f"checkpoint{number}"),
            )
        )

    with pytest.raises(BadValueError, match="both a delay and a tolerance"):
        tether.subscribe(spark, inputs.paths, reader="r", bucket=10, delay=1, tolerance=policies[0])
    both = tether.subscribe(spark, inputs.paths, reader="r", bucket=10, tolerance=policies[0])
    for other in (tether.MiniBatch(), tether.Available(delay=2.0)):
        with pytest.raises(QueryRefusedError, match=r"same tolerance|one tether\.Available"):
            tether.stream(both).apply(KeyedAggregate(), key="v").start(
                tolerance=other, backup=str(tmp_path / "refused")
            )

    between, last = str(tmp_path / "between"), tether.to_memory(key="v")
    inputs.send(0, 1)
    first = begin(0, inputs.paths, tether.to_exchange(between, time="v"))
    queries = [first]
    try:
        wait_for(lambda: kinds(between)["stable"], first)
        second = begin(1, [between], last)
        queries.append(second)
        wait_for(lambda: len(last.rows("stable")) == 1, first, second)
        inputs.send(0)  # the other is silent
        wait_for(lambda: len(last.rows("newest")) == 2, first, second)
        assert [row["_stability"] for row in last.rows("newest")] == ["stable", "tentative"]
        inputs.send(1)
        wait_for(lambda: len(last.rows("stable")) == 2, first, second)
    finally:
        for query in queries:
            query.stop()
    # The paper's figure 3, as client code sees it: stable, tentative, undo, stable.
    assert [
        (row["_change_type"], row["_stability"], row["v"], row["total"])
        for row in last.rows("history")
    ] == [
        ("insert", "stable", 0, 5),
        ("insert", "tentative", 10, 2),
        ("update_preimage", "tentative", 10, 2),
        ("update_postimage", "stable", 10, 5),
    ]
    assert stable_rows(between, ["v", "count"]) == [(0, 5), (10, 5)]


PROGRAM = """
import tether
from tether.algorithms.aggregate import KeyedAggregate

tolerance = tether.Available(delay=3.0, alpha=0.8)


def stream(spark, replica):
    rows = tether.subscribe(
        spark, {inputs!r}, reader="totals", bucket=10, tolerance=tolerance, replica=replica
    )
    return tether.stream(rows).apply(KeyedAggregate(), key="v", parallelism=1)
"""


class Replicas:
    """Drivers of one program, each a process of its own."""

    def __init__(self, work: Path, inputs: Inputs) -> None:
        self.work = work
        (work / "program.py").write_text(PROGRAM.format(inputs=inputs.paths))
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def exchange(self, name: str) -> str:
        return str(self.work / "shared" / name / "exchange")

    def start(self, name: str) -> None:
        command = [
            *(sys.executable, "-c", "from tether.cli.app import main; main()"),
            *("replica", str(self.work / "program.py"), "--name", name, "--time", "v", "--json"),
            *("--folder", str(self.work / "shared"), "--master", "local[1,4]", "--lease", "5"),
        ]
        with (self.work / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )

    def signal(self, name: str, number: int) -> None:
        """To the driver and all processes below it: as a machine that dies or stands still."""
        os.killpg(self.running[name].pid, number)

    def end(self) -> None:
        for name, process in self.running.items():
            if process.poll() is None:
                self.signal(name, signal.SIGKILL)
            process.wait()

    def told(self, name: str) -> list[dict[str, Any]]:
        lines = (self.work / f"{name}.log").read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_of_two_replicas_dies_or_stands_still(spark: Any, tmp_path: Path, number: int) -> None:
    """Their reader has each stable row once and in order, and is answered all the time."""
    inputs = Inputs(tmp_path)
    replicas = Replicas(tmp_path, inputs)
    reader, query = tether.to_memory(key="v"), None
    inputs.send(0, 1)
    try:
        for name in "ab":
            replicas.start(name)
        for name in "ab":
            wait_for(lambda name=name: kinds(replicas.exchange(name))["stable"])
        policy = tether.Available(delay=3.0, alpha=0.8)
        rows = tether.subscribe(
            spark,
            [[replicas.exchange(name) for name in "ab"]],
            reader="client",
            bucket=10,
            tolerance=policy,
        )
        query = (
            tether.stream(rows.selectExpr("v", "count AS n"))
            .apply(KeyedAggregate({"total": "n"}, count=None), key="v", parallelism=1)
            .start(
                reader,
                tolerance=policy,
                backup=str(tmp_path / "backup"),
                checkpoint=str(tmp_path / "checkpoint"),
            )
        )
        for buckets in (2, 3, 4):
            inputs.send(0, 1)
            wait_for(lambda n=buckets: len(reader.rows("stable")) >= n, query)
        replicas.signal("a", number)  # the one that is followed
        inputs.send(0, 1)
        wait_for(lambda: len(reader.rows("stable")) >= 5, query)
        inputs.send(0)  # an input of the one that is left falls silent
        wait_for(lambda: reader.rows("newest")[-1]["_stability"] == "tentative", query)
        inputs.send(1)
        wait_for(lambda: len(reader.rows("stable")) >= 6, query)
        if number == signal.SIGSTOP:
            replicas.signal("a", signal.SIGCONT)
        else:
            replicas.start("a")
        wait_for(lambda: len(stable_rows(replicas.exchange("a"), ["v"])) >= 6)
        replicas.signal("b", signal.SIGKILL)  # now the other one
        inputs.send(0, 1)
        wait_for(lambda: len(reader.rows("stable")) >= 7, query)
    finally:
        replicas.end()
        if query is not None:
            query.stop()
    assert [(row["v"], row["total"]) for row in reader.rows("stable")] == [
        (10 * at, 5) for at in range(7)
    ]
    assert stable_rows(replicas.exchange("a"), ["v", "count"]) == [(10 * at, 5) for at in range(7)]


@pytest.mark.long
def test_the_network_to_an_input_is_cut_and_hangs(
    spark: Any, tmp_path: Path, s3_options: Any
) -> None:
    """Refused, cut in the middle of answers, or without a word: the query goes on, and is right."""
    folder = f"s3://backups/{uuid.uuid4().hex}"
    near, far = (Written(f"{folder}/{name}", s3_options) for name in ("near", "far"))
    for each in (near, far):
        each.writer._clock = time.time
    sent = [0, 0]

    def send(*numbers: int) -> None:
        for number in numbers:
            at = sent[number]
            sent[number] += 1
            (near, far)[number].add(at, [(10 * at, 10 * at)] * (number + 2), boundary=10 * at + 10)

    output, query = tether.to_memory(key="v"), None
    with loopback_proxy(s3_options["endpoint_url"]) as proxy:
        proxy.stall_seconds = 20.0
        policy = tether.Available(delay=3.0, alpha=0.7)
        send(0, 1)
        rows = tether.subscribe(
            spark,
            [f"{folder}/near", f"{folder}/far"],
            reader="r",
            bucket=10,
            tolerance=policy,
            options={**s3_options, "endpoint_url": proxy.url},
        )
        try:
            query = (
                tether.stream(rows)
                .apply(KeyedAggregate(), key="v", parallelism=1)
                .start(
                    output,
                    tolerance=policy,
                    backup=str(tmp_path / "backup"),
                    checkpoint=str(tmp_path / "checkpoint"),
                )
            )
            wait_for(lambda: len(output.rows("stable")) == 1, query)
            for trouble in ("refuse", "cut", "stall"):
                whole = len(output.rows("stable"))
                proxy.trouble = lambda asked, now=trouble: now if "/far/" in asked.path else None
                send(0, 1)  # the far one's writer is on the other side of the cut
                wait_for(lambda: output.rows("newest")[-1]["_stability"] == "tentative", query)
                assert len(output.rows("stable")) == whole
                proxy.trouble = lambda _: None
                wait_for(lambda n=whole: len(output.rows("stable")) == n + 1, query)
            assert proxy.seen.keys() >= {"refuse", "cut", "stall"}
        finally:
            if query is not None:
                query.stop()
    assert [(row["v"], row["count"]) for row in output.rows("stable")] == [
        (10 * at, 5) for at in range(4)
    ]


@pytest.mark.long
def test_gateways_as_inputs_one_of_which_is_killed_and_one_hangs(
    spark: Any, tmp_path: Path
) -> None:
    """Without a query in between: answers go on, and every acknowledged row is in the end, once."""
    output, query = tether.to_memory(key="at"), None
    policy = tether.Available(delay=3.0, alpha=0.7)
    with (
        gateway(tmp_path / "one", "--stream", "s=at bigint") as one,
        gateway(tmp_path / "other", "--stream", "s=at bigint") as other,
        Producer(one.flight, "s", "at bigint", id="a") as near,
        Producer(other.flight, "s", "at bigint", id="b", replays=True) as far,
    ):
        sent = [0, 0]

        def send(*numbers: int) -> None:
            for number in numbers:
                at = sent[number]  # a bucket is a second
                sent[number] += 1
                producer = (near, far)[number]
                producer.send([{"at": at}] * (number + 2))
                producer.boundary(float(at + 1))
                producer.flush()

        send(0, 1)
        inputs = [
            tether.GatewayInput(
                gateway=process.flight,
                stream="s",
                time="at",
                index=str(tmp_path / f"index{number}"),
            )
            for number, process in enumerate((one, other))
        ]
        rows = tether.subscribe(spark, inputs, reader="r", bucket=1.0, tolerance=policy)
        try:
            query = (
                tether.stream(rows)
                .apply(KeyedAggregate(), key="at", parallelism=1)
                .start(
                    output,
                    tolerance=policy,
                    backup=str(tmp_path / "backup"),
                    checkpoint=str(tmp_path / "checkpoint"),
                )
            )
            wait_for(lambda: len(output.rows("stable")) == 1, query)
            for number in (signal.SIGKILL, signal.SIGSTOP):
                whole = len(output.rows("stable"))
                if number == signal.SIGKILL:
                    other.kill()
                else:
                    other.signal(number)
                send(0)
                wait_for(lambda: output.rows("newest")[-1]["_stability"] == "tentative", query)
                assert len(output.rows("stable")) == whole
                if number == signal.SIGKILL:
                    other.start()
                else:
                    other.signal(signal.SIGCONT)
                send(1)
                wait_for(lambda n=whole: len(output.rows("stable")) == n + 1, query)
        finally:
            if query is not None:
                query.stop()
    assert [(row["at"], row["count"]) for row in output.rows("stable")] == [
        (at, 5) for at in range(3)
    ]


@pytest.mark.long
def test_a_gateway_behind_an_exchange(spark: Any, tmp_path: Path) -> None:
    """What its producers say of time becomes the exchange's boundaries, without any rows, too."""
    with gateway(tmp_path / "store", "--stream", "s=at bigint", "--producers", "2") as process:
        rows = spark.readStream.format("tether").option("gateway", process.flight)
        rows = rows.option("stream", "s").load().selectExpr("timestamp_seconds(at) AS at")
        with (
            Producer(process.flight, "s", "at bigint", id="a") as one,
            Producer(process.flight, "s", "at bigint", id="b") as other,
        ):
            one.send([{"at": 1}, {"at": 3}])
            one.boundary(4.0)
            other.boundary(2.0)
            query = tether.ingest(
                rows,
                str(tmp_path / "x"),
                checkpoint=str(tmp_path / "checkpoint"),
                time="at",
                boundaries="gateway",
                producers=2,
            )
            try:
                wait_for(lambda: newest_boundary(str(tmp_path / "x")) == 2_000_000, query)
                other.boundary(9.0)
                wait_for(lambda: newest_boundary(str(tmp_path / "x")) == 4_000_000, query)
            finally:
                query.stop()
    assert len(stable_rows(str(tmp_path / "x"), ["at"])) == 2


def newest_boundary(path: str) -> int | None:
    entries = ExchangeAddress(url=path).open().entries(0)
    return max((entry.boundary for entry in entries if entry.boundary is not None), default=None)
