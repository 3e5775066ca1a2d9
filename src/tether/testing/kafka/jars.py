"""Which jars a broker needs, and which Spark needs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.testing.java_packages import UnreachableError, fetched

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BROKER", "CONNECTOR", "UnreachableError", "broker_jars", "connector_jars"]

BROKER = ("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1")
CONNECTOR = "4.2.0"
"""Release of the connector: the newest that is published, which runs on Spark 4.3."""

_CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def broker_jars(folder: Path) -> list[Path]:
    """The jars of a Kafka broker, fetched once into a folder.

    Raises:
        UnreachableError: They cannot be fetched, and are not there.
    """
    return [fetched(one, folder / "broker", conf="default") for one in BROKER][-1]


def connector_jars(folder: Path) -> list[Path]:
    """The jars of Spark's Kafka connector, for ``spark.jars``.

    Raises:
        UnreachableError: They cannot be fetched, and are not there.
    """
    found = [fetched(one, folder / "connector", conf="master") for one in _CONNECTOR]
    return sorted({jar for jars in found for jar in jars})
