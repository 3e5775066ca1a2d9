"""Jars of a broker and of Spark's connector, resolved by the Ivy that PySpark carries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark

from tether.core.errors import TetherError

BROKER = ("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1")
CONNECTOR = "4.2.0"
"""Release of the connector: the newest that is published, which runs on Spark 4.3."""

_CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
_SECONDS = 240


class UnreachableError(TetherError):
    """The registry of Java packages cannot be reached from here."""

    code = "unreachable"


def broker_jars(folder: Path) -> list[Path]:
    """The jars of a Kafka broker, fetched once into a folder.

    Raises:
        UnreachableError: They cannot be fetched, and are not there.
    """
    return [_resolved(one, folder / "broker", conf="default") for one in BROKER][-1]


def connector_jars(folder: Path) -> list[Path]:
    """The jars of Spark's Kafka connector, for ``spark.jars``.

    Raises:
        UnreachableError: They cannot be fetched, and are not there.
    """
    found = [_resolved(one, folder / "connector", conf="master") for one in _CONNECTOR]
    return sorted({jar for jars in found for jar in jars})


def _resolved(coordinates: str, folder: Path, *, conf: str) -> list[Path]:
    """Fetch a package: alone ("master") or with all that it needs ("default")."""
    group, artifact, version = coordinates.split(":")
    done = folder / f".{artifact}-{version}"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pattern = str(folder / "[artifact]-[revision].[ext]")
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        command = [_java(), "-jar", str(ivy), "-dependency", group, artifact, version]
        command += ["-confs", conf, "-types", "jar", "bundle", "-retrieve", pattern]
        command += ["-cache", str(folder.parent / "ivy-cache")]
        try:
            told = subprocess.run(  # noqa: S603 - PySpark's own Ivy
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unreachable(coordinates, str(error)) from error
        if not (folder / f"{artifact}-{version}.jar").exists():
            lines = [line for line in told.stdout.splitlines() if line.strip()]
            raise _unreachable(coordinates, " ".join(lines[-3:])[-400:])
        done.touch()
    if conf == "master":
        return [folder / f"{artifact}-{version}.jar"]
    return sorted(folder.glob("*.jar"))


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _unreachable(coordinates: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"The Java package {coordinates} cannot be fetched.",
        why=why,
        do="Check the connection to the registry, or put the jar into the folder yourself.",
    )
