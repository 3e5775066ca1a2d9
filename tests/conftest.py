"""What every test needs, however pytest was started: through make, an editor, or by hand."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from tests import chaos_progress, chaos_summary, class_archive, kills

from tether.cli.session import open_session
from tether.data import DataFolder
from tether.sql.settings import load_class
from tether.testing.slow_store import FILE_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# A machine that is busy with Spark is no fair judge of how long one example may take, or its making.
# Hypothesis takes a machine with CI in its environment for one that wants the same examples every time.
# So each profile says it itself.
settings.register_profile(
    "fresh",
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow],
)
# ``make test`` tries the same examples everywhere, so that a clean clone gets the verdict that we got.
# New ones are for ``make fuzz`` and ``make chaos``, which print their seed: --hypothesis-profile=fresh.
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
# Whoever only asks whether anything fails, as ``make mutants`` does, needs no small example of it.
settings.register_profile(
    "noticed", settings.get_profile("same"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("same")


def _variables_of_setup() -> dict[str, str]:
    """What ``make setup`` found out about this machine; nothing when it was not used."""
    env_file = Path(sys.prefix) / "tether-env"
    if not env_file.is_file():
        return {}
    words = shlex.split(env_file.read_text(encoding="utf-8"))
    return dict(word.split("=", 1) for word in words)


# The same as scripts/run sets; now, because they must be there before anyone starts Spark.
for _name, _value in {
    **_variables_of_setup(),
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_HOME": str(class_archive.spark_home()),
    "JDK_JAVA_OPTIONS": class_archive.java_options(),
}.items():
    os.environ.setdefault(_name, _value)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave the long tests to those who ask for them."""
    if item.get_closest_marker("long") and not os.environ.get("TETHER_LONG"):
        item.add_marker(pytest.mark.skip(reason="long: run by make chaos, or with TETHER_LONG=1"))


SECONDS = {"cluster": 30.0, "chaos": 8.0, "spark": 4.0}
"""About how long a test with a mark takes; all others a tenth of a second."""


@pytest.hookimpl(trylast=True)  # marks of folders come before
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the files, those that take longest come first.

    Otherwise the last one may be long, and leave all processes but one idle.
    """
    if not hasattr(config, "workerinput"):
        return
    seconds: dict[Path, float] = defaultdict(float)
    for item in items:
        if not item.get_closest_marker("skip"):
            seconds[item.path] += max(
                (each for mark, each in SECONDS.items() if item.get_closest_marker(mark)),
                default=0.1,
            )
    items.sort(key=lambda item: (-seconds[item.path], item.path))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--again", action="store_true", help="chaos: run what has passed on this commit again"
    )


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("TETHER_LONG") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_LongRun(config.getoption("again")), "tether-long-run")


class _LongRun:
    """A run of the long tests: it goes on where the last one on this commit stopped."""

    def __init__(self, again: bool) -> None:
        self._progress, self._again = chaos_progress.Progress(), again

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[Any]) -> None:
        done = [item for item in items if not self._again and self._progress.passed(item.nodeid)]
        if done:
            items[:] = [item for item in items if item not in done]
            config.hook.pytest_deselected(items=done)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._progress.add(report)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("what has run; --again runs it again")
        for line in self._progress.table():
            terminalreporter.line(line)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was killed under which policy, and whether the promise held."""
    if killed := kills.told_by(terminalreporter.stats):
        terminalreporter.section("kills")
        terminalreporter.line(kills.note(killed))
    told = chaos_summary.told_by(terminalreporter.stats)
    if told:
        terminalreporter.section("failures on purpose")
        for line in chaos_summary.lines(told):
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test process, for all tests that kill no driver.

    A process has one context: a second fixture that opened and stopped it would take it away from
    whichever tests come next, and which those are differs from machine to machine.
    """
    conf = {
        "spark.sql.shuffle.partitions": "2",
        # What looks after state stores closes those of queries that have ended, once a minute, and
        # Tether's then makes all durable: a test that restarts a query would lose nothing, now and then.
        "spark.sql.streaming.stateStore.maintenanceInterval": "1d",
    }
    session = open_session("local[2,4]", app="tether tests", conf=conf)
    yield session
    session.stop()


@pytest.fixture
def slow_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session, which knows the benchmarks' slow store: ``slow:///path``."""
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    load_class(spark, FILE_SYSTEM)  # adds our jar
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.slow.impl", FILE_SYSTEM)
    hadoop.setClassLoader(spark._jsparkSession.sharedState().jarClassLoader())
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", partitions)


@pytest.fixture(scope="session")
def data() -> DataFolder:
    """Public data sets, where the machine has them."""
    folder = DataFolder()
    if not folder.has("covtype"):
        pytest.skip("no data sets here: set TETHER_DATA to their folder")
    return folder


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    """A real server that speaks S3, on loopback, with a bucket in it."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    moto_server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "fake", "secret": "fake", "endpoint_url": f"http://{host}:{port}"}
    fsspec.filesystem("s3", **options).mkdir("backups")
    yield options
    server.stop()
