"""The slow file system of the benchmarks: a query works on it, and every call takes its time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.sql.direct import new_instance

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_every_call_of_the_slow_file_system_waits_once(spark: SparkSession, tmp_path: Path) -> None:
    session: Any = spark
    jvm = session.sparkContext._jvm
    fs = new_instance(spark, "tether.sql.SlowFileSystem")
    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    conf.set("fs.slow.latency.ms", "200")
    fs.initialize(jvm.java.net.URI("slow:///"), conf)
    path = jvm.org.apache.hadoop.fs.Path(f"slow:{tmp_path}/one")
    began = time.monotonic()
    fs.create(path).close()
    assert fs.exists(path)
    assert fs.rename(path, path.suffix("-two"))
    took = time.monotonic() - began
    assert 0.6 <= took < 1.9  # three questions; Hadoop's local answers to them are made of ten
    assert (tmp_path / "one-two").exists()
