"""Rows into a Kafka broker, beside those into a gateway: same rows, same bytes in a request."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Measurement
from tether.core.errors import TetherError
from tether.testing.kafka import running_broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness import Experiment
    from tether.testing.kafka import Broker

ROW_BYTES = 16
JARS = Path(os.environ.get("TETHER_KAFKA_JARS", Path.home() / ".cache" / "tether" / "kafka"))
NEVER = str(2**63 - 1)


def beside_kafka(experiment: Experiment, folder: Path, rows: int) -> None:
    """Measure one broker on this machine, where one can be had; else say why there is none.

    Kafka's own load generator sends one record for a row, in requests of as many bytes as the gateway's
    batches of 1000 rows. Without replicas ``acks=all`` waits for the same one broker as ``acks=1``, and
    neither waits for a disk: that is Kafka's default. What waits for it is measured apart.
    """
    try:
        with running_broker(
            folder / "kafka", JARS, {"log.flush.interval.messages": NEVER}
        ) as broker:
            broker.create_topic("rows", partitions=1)
            broker.create_topic("synced", partitions=1, **{"flush.messages": "1"})
            experiment.measure(
                {
                    "Kafka, acks=1": _sender(broker, "rows", rows, "1"),
                    "Kafka, acks=all": _sender(broker, "rows", rows, "all"),
                    "Kafka, acks=all, synced": _sender(broker, "synced", rows // 20, "all"),
                }
            )
    except (TetherError, OSError, subprocess.SubprocessError) as error:
        experiment.skipped["Kafka, acks=1 and acks=all"] = str(error)


def _sender(broker: Broker, topic: str, rows: int, acks: str) -> Callable[[], Measurement]:
    def send() -> Measurement:
        told = broker.load(
            topic,
            rows,
            ROW_BYTES,
            acks=acks,
            **{"batch.size": str(1000 * ROW_BYTES), "linger.ms": "5"},
        )
        sums = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", told)
        if not sums:
            raise TetherError(
                "Kafka's load generator did not say how fast it was.", why=told[-300:]
            )
        sent, speed = sums[-1]  # those before are of parts of the run
        return Measurement([1000 * rows / float(speed)], int(sent) == rows, rows=rows)

    return send
