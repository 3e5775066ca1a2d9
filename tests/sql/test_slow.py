"""The slow file system of the benchmarks: a query works on it, and every call takes its time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tether.sql.settings import add_to_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_every_call_of_the_slow_file_system_waits_once(spark: SparkSession, tmp_path: Path) -> None:
    add_to_session(spark)
    session: Any = spark
    jvm = session.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    fs = (
        loader.loadClass("tether.sql.SlowFileSystem")
        .getConstructors()[0]
        .newInstance(session.sparkContext._gateway.new_array(jvm.java.lang.Object, 0))
    )
    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    conf.set("fs.slow.latency.ms", "40")
    fs.initialize(jvm.java.net.URI("slow:///"), conf)
    path = jvm.org.apache.hadoop.fs.Path(f"slow:{tmp_path}/one")
    began = time.monotonic()
    fs.create(path).close()
    assert fs.exists(path)
    assert fs.rename(path, path.suffix("-two"))
    took = time.monotonic() - began
    assert 0.12 <= took < 0.4  # three questions; Hadoop's local answers to them are made of ten
    assert (tmp_path / "one-two").exists()
