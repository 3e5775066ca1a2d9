"""Hadoop's file system for S3 (``s3a://``), for a session of a test: its jars and its settings.

Spark's own files, a checkpoint say, are written by the JVM; Tether's backups by Python (``s3://``). The
SDK is taken in parts, for the bundle that Hadoop names has 600 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tether.testing.java_packages import fetched

if TYPE_CHECKING:
    from pathlib import Path

HADOOP = "3.5.0"
"""The release that PySpark 4.3 carries."""
SDK = "2.35.4"
"""The release of the SDK that this Hadoop was made with."""

_PACKAGES = (
    f"software.amazon.awssdk:s3:{SDK}",
    f"software.amazon.awssdk:s3-transfer-manager:{SDK}",
    f"software.amazon.awssdk:sts:{SDK}",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
_SPARK_HAS = ("slf4j-api", "commons-codec", "commons-logging")


def s3a_jars(folder: Path) -> list[Path]:
    """The jars, fetched once into a folder.

    Raises:
        UnreachableError: They cannot be fetched, and are not there.
    """
    fetched(f"org.apache.hadoop:hadoop-aws:{HADOOP}", folder / "jars", conf="master")
    jars = [fetched(one, folder / "jars", conf="default") for one in _PACKAGES][-1]
    return [jar for jar in jars if not jar.name.startswith(_SPARK_HAS)]


def s3a_settings(jars: list[Path], endpoint: str, key: str, secret: str) -> dict[str, str]:
    """Settings of a session that reaches a server on loopback at ``s3a://``.

    Args:
        jars: From :func:`s3a_jars`.
        endpoint: URL of the server.
        key: Its access key.
        secret: Its secret key.
    """
    hadoop = {
        "endpoint": endpoint,
        "endpoint.region": "us-east-1",
        "access.key": key,
        "secret.key": secret,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        # Two tries of a request that was refused, soon after each other: tests wait for them.
        "attempts.maximum": "3",
        "retry.limit": "3",
        "retry.interval": "50ms",
        "retry.throttle.limit": "6",
        "retry.throttle.interval": "50ms",
    }
    return {"spark.jars": ",".join(map(str, jars))} | {
        f"spark.hadoop.fs.s3a.{name}": value for name, value in hadoop.items()
    }
