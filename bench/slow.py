"""A checkpoint behind a slow network, for any query and any state store: a benchmark's only."""

from __future__ import annotations

from tether.sql.jar import jar_path

LATENCY_MS = 50


def slow_settings(latency_ms: int = LATENCY_MS) -> dict[str, str]:
    """Settings of a session that can use ``slow:`` paths: every call waits for so many milliseconds.

    They must be there when the session is made: ``open_session(..., settings=slow_settings())``.
    """
    return {
        "spark.jars": str(jar_path()),
        "spark.hadoop.fs.slow.impl": "tether.sql.SlowFileSystem",
        "spark.hadoop.fs.slow.latency.ms": str(latency_ms),
    }
