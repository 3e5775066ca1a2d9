"""Settings of a Spark session that knows the slow store."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from bench.contenders.slow_files import COUNT, LATENCY
from tether.sql.jar import build, built_from, spark_jars, without_spaces

SOURCES = Path(__file__).resolve().parents[1] / "jvm"
JAR = SOURCES.parent / "results" / "tether-bench.jar"


def slow_jar() -> Path:
    """The jar with the slow file system, built where its source has changed."""
    sources, jars = sorted(SOURCES.glob("*.scala")), spark_jars()
    text = b"".join(source.read_bytes() for source in sources) + str(jars).encode()
    wanted = hashlib.sha256(text).hexdigest()
    JAR.parent.mkdir(parents=True, exist_ok=True)
    with JAR.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if built_from(JAR) != wanted:
            build(sources, jars, JAR, wanted)
    return without_spaces(JAR)


def slow_settings(latency: float, counter: Path | None = None) -> dict[str, str]:
    """What a session needs for its ``slow://`` paths to take ``latency`` seconds a request.

    The JVM and the Python workers take the latency and the counter from the environment, so this is
    called before either starts. Each request leaves a byte in ``counter``, if one is given.
    """
    os.environ[LATENCY] = str(latency)
    if counter is not None:
        os.environ[COUNT] = str(counter)
    return {
        "spark.driver.extraClassPath": str(slow_jar()),
        "spark.hadoop.fs.slow.impl": "tether.bench.SlowFileSystem",
    }
