"""A single Kafka node in KRaft mode: started from jars, killed with SIGKILL, started again."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tether.core.errors import TetherError
from tether.testing.cluster import free_port
from tether.testing.java_packages import java_program
from tether.testing.kafka.jars import broker_jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

START_SECONDS = 90.0
_CLUSTER = "dGV0aGVyLWthZmthLXRlcw"
"""Any 22 characters that decode to 16 bytes: a cluster of one node needs no better name."""


class Broker:
    """A broker on loopback.

    Args:
        folder: Where its log and settings are; kept over a kill.
        jars: Its class path.
        settings: Further settings of Kafka, for example a short retention.
    """

    def __init__(
        self, folder: Path, jars: Sequence[Path], settings: dict[str, str] | None = None
    ) -> None:
        self._folder, self._jars = folder, jars
        self.port, controller = free_port("127.0.0.1"), free_port("127.0.0.1")
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(folder / "log"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "auto.create.topics.enable": "true",
            "num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            # A record that was acknowledged is on disk: the broker is killed, not only stopped.
            "log.flush.interval.messages": "1",
            **(settings or {}),
        }
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        self._run("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings))

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        with (self._folder / "broker.out").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the broker
                self._command("kafka.Kafka", str(self._settings)),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        self._await()

    def kill(self) -> None:
        """SIGKILL, as a machine that fails."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def create_topic(self, name: str, *, partitions: int = 2, **settings: str) -> None:
        """Make a topic."""
        more = [part for k, v in settings.items() for part in ("--config", f"{k}={v}")]
        self._topics("--create", "--topic", name, "--partitions", str(partitions), *more)

    def load(self, topic: str, records: int, size: int, **producer: str) -> str:
        """Send records as fast as they go, with Kafka's own generator; gives what it says.

        Args:
            topic: Where to.
            records: How many.
            size: Bytes of each.
            producer: Settings of the producer, for example ``acks``.
        """
        settings = {"bootstrap.servers": self.address, **producer}
        return self._run(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", "-1", "--producer-props"),
            *(f"{name}={value}" for name, value in settings.items()),
        )

    def produce(self, topic: str, values: Iterable[str]) -> None:
        """Send records with these values, in this order, to the partitions in turn.

        Args:
            topic: Where to.
            values: One record each; without line ends.
        """
        self._run(
            "kafka.tools.ConsoleProducer",
            *("--bootstrap-server", self.address, "--topic", topic),
            # Small batches go to one partition after the other: each gets its share.
            *("--producer-property", "batch.size=2000", "--request-required-acks", "all"),
            said="".join(f"{value}\n" for value in values),
        )

    def ends(self, topic: str) -> dict[int, int]:
        """The offset that the next record of each partition will get."""
        told = self._run(
            "org.apache.kafka.tools.GetOffsetShell",
            *("--bootstrap-server", self.address, "--topic", topic),
        )
        lines = (line.split(":") for line in told.split())
        return {int(partition): int(end) for _, partition, end in lines}

    def forget(self, topic: str, before: Mapping[int, int]) -> None:
        """Remove the records before an offset of each partition, as a retention that is over does."""
        partitions = [
            {"topic": topic, "partition": partition, "offset": offset}
            for partition, offset in before.items()
        ]
        order = self._folder / "forget.json"
        order.write_text(json.dumps({"partitions": partitions, "version": 1}))
        self._run(
            "org.apache.kafka.tools.DeleteRecordsCommand",
            *("--bootstrap-server", self.address, "--offset-json-file", str(order)),
        )

    def _topics(self, *arguments: str) -> str:
        return self._run(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, *arguments
        )

    def _await(self) -> None:
        """The broker answers: a listening port alone is too early."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            with suppress(TetherError):
                self._topics("--list")
                return
        told = (self._folder / "broker.out").read_text(errors="replace")[-600:]
        raise TetherError("The Kafka broker did not come up.", why=told, do="See broker.out.")

    def _command(self, main: str, *arguments: str) -> list[str]:
        classes = os.pathsep.join(map(str, self._jars))
        return [
            java_program(),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            classes,
            main,
            *arguments,
        ]

    def _run(self, main: str, *arguments: str, said: str = "") -> str:
        done = subprocess.run(  # noqa: S603 - a tool of the broker
            self._command(main, *arguments),
            input=said,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise TetherError(
                f"{main} failed.", why=(done.stderr or done.stdout)[-600:], do="See the text."
            )
        return done.stdout


@contextmanager
def running_broker(
    folder: Path, jars_folder: Path, settings: dict[str, str] | None = None
) -> Iterator[Broker]:
    """A broker for the length of a block.

    Args:
        folder: For its log and settings.
        jars_folder: Where jars are kept, and fetched to where they are not there.
        settings: Further settings of Kafka.

    Raises:
        UnreachableError: Its jars cannot be fetched.
    """
    broker = Broker(folder, broker_jars(jars_folder), settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
