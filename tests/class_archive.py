"""Spark's classes as Java keeps them ready: the many JVMs of the tests are up in half the time.

Java can write the classes that a program has loaded to a file, checked and laid out, and map it into
later processes (class data sharing). ``make test`` has the file made once for an environment, by a small
query that comes through what most tests use. Without it everything works as well, more slowly: Java
itself refuses a file that fits neither it nor Spark's jars, and goes on.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from tether.testing.cluster import linked_home

HOME = Path(sys.prefix) / "spark-home"
"""Spark's folder, under one name for all: Java compares the paths of jars as they are written."""
_FOR_TESTS = "-XX:TieredStopAtLevel=1"
"""No process of a test lives long enough to earn back what Java's second compiler costs."""


def spark_home() -> Path:
    """Spark's folder under that name."""
    return linked_home(HOME)


def archive() -> Path:
    """The file for this Spark; another version has another."""
    jars = sorted(path.name for path in (Path(pyspark.__file__).parent / "jars").iterdir())
    digest = hashlib.sha256("\n".join([str(HOME), *jars]).encode()).hexdigest()[:16]
    return Path(sys.prefix) / f"spark-classes-{digest}.jsa"


def java_options() -> str:
    """What JDK_JAVA_OPTIONS should be for every Java process of a test."""
    if not archive().is_file():
        return _FOR_TESTS
    # Spark's launcher reads its own program's output, where Java would complain of a file that is
    # not for that program's jars.
    return f"{_FOR_TESTS} -XX:SharedArchiveFile={archive()} -Xshare:auto -Xlog:disable"


def make() -> None:
    """Write the file, unless it is there."""
    if archive().is_file():
        return
    print("tests: noting Spark's classes (about 20 s, once)", flush=True)
    partial = archive().with_suffix(f".{os.getpid()}")
    options = f"{_FOR_TESTS} -XX:ArchiveClassesAtExit={partial} -Xlog:disable"
    environment = {**os.environ, "JDK_JAVA_OPTIONS": options, "SPARK_HOME": str(spark_home())}
    done = subprocess.run(
        [sys.executable, "-m", "tests.class_archive", "load"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0 and partial.is_file():
        partial.rename(archive())
    else:  # tests run without it
        partial.unlink(missing_ok=True)
        print(f"tests: not done, tests will be slower: {done.stderr[-500:]}", file=sys.stderr)


def _load() -> None:
    """Come through what most tests use, so that its classes are loaded."""
    from tests.spark.counting import CountingQuery, skewed_keys

    import tether
    from tether.cli.session import open_session

    session = open_session("local[2,4]", app="tether tests")
    with tempfile.TemporaryDirectory() as work:
        tables = skewed_keys(epochs=2, rows=100, keys=10, seed=1)
        query = CountingQuery(session, Path(work), tables).run(tether.MiniBatch())
        assert query.exception() is None
        query.stop()
    session.stop()


if __name__ == "__main__":
    _load() if sys.argv[1:] == ["load"] else make()
