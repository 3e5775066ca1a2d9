"""A real Spark cluster on loopback: a standalone master and its workers, from PySpark's own package.

For tests and drills: executors are processes of their own, so one that is killed truly loses its
memory. Every process started here, and no other, is ended with the ``with`` block.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tether.core.errors import TetherError
from tether.testing.processes import command_of, descendants, kill, kill_all

if TYPE_CHECKING:
    from collections.abc import Iterator

FAST_DETECTION = {
    "spark.network.timeout": "4s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "4000",
}
"""Settings of a session with which a hung executor is noticed in about four seconds, not in 120."""

START_SECONDS = 60.0


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        url: For ``SparkSession.builder.master``.
        scratch: Where logs and executors' files are.
        workers: The workers' processes, by number; those that were killed are still among them.
        cores: Of each worker.
        memory: Of each worker.
    """

    url: str
    scratch: Path
    master: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    cores: int = 1
    memory: str = "1400m"

    def start_worker(self, *, host: str = "127.0.0.1", launcher: tuple[str, ...] = ()) -> int:
        """Start one more worker; gives its number.

        Args:
            host: Where it listens.
            launcher: Put before its command, to run it in another network namespace, say.
        """
        number = len(self.workers)
        arguments = ["worker.Worker", "--host", host, "-c", str(self.cores), "-m", self.memory]
        arguments += ["--webui-port", "0", "--work-dir", str(self.scratch / f"work-{number}")]
        arguments += [self.url]
        self.workers.append(_start(self.scratch, f"worker-{number}", arguments, host, launcher))
        return number

    def living_workers(self) -> int:
        """Workers that have not been killed."""
        return sum(worker.poll() is None for worker in self.workers)

    def executors(self) -> list[int]:
        """Process ids of all executors of this cluster that live."""
        return [pid for worker in self.workers for pid in executors_of(worker.pid)]

    def kill_executor(self, number: int = 0) -> int:
        """SIGKILL an executor; its worker starts another. Gives the process id that is gone."""
        victim = self.executors()[number]
        kill(victim)
        return victim

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker and its executors, as the loss of a machine would."""
        kill_all(self.workers[number].pid)
        self.workers[number].wait(10)

    def logs(self, last_bytes: int = 4000) -> str:
        """The ends of all logs: what explains a run that went wrong."""
        parts = []
        for path in sorted(self.scratch.rglob("*")):
            if path.suffix in (".log", "") and path.is_file() and path.name != "spark-class":
                text = path.read_bytes()[-last_bytes:].decode(errors="replace")
                parts.append(f"==== {path.relative_to(self.scratch)}\n{text}")
        return "\n".join(parts)


@contextmanager
def standalone_cluster(
    scratch: Path,
    *,
    workers: int = 3,
    cores: int = 1,
    memory: str = "1400m",
    host: str = "127.0.0.1",
) -> Iterator[Cluster]:
    """Start a master and workers on this machine; end them at the end of the block.

    Args:
        scratch: An empty directory for logs and executors' files.
        workers: Number of workers; each starts one executor for an application.
        cores: Cores of each.
        memory: Memory of each, as Spark writes it; an executor asks for 1 GB unless told otherwise.
        host: Address of the master and its workers.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    port = free_port(host)
    arguments = ["master.Master", "--host", host, "--port", str(port), "--webui-port", "0"]
    master = _start(scratch, "master", arguments, host)
    cluster = Cluster(f"spark://{host}:{port}", scratch, master, cores=cores, memory=memory)
    try:
        _await_port(cluster, host, port)
        for _ in range(workers):
            cluster.start_worker(host=host)
        yield cluster
    finally:
        for process in [*cluster.workers, cluster.master]:
            kill_all(process.pid)
            process.wait(10)


def _start(
    scratch: Path, name: str, arguments: list[str], host: str, launcher: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": host, "SPARK_NO_DAEMONIZE": "1"}
    command = [*launcher, str(program), f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
    with (scratch / f"{name}.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - Spark's own starter
            command, stdout=log, stderr=subprocess.STDOUT, env=environment
        )


def linked_home(folder: Path) -> Path:
    """Links to Spark's own folders, for ``SPARK_HOME``.

    A local-cluster writes its executors' files beside them, which must not be the installed package.
    """
    folder.mkdir(exist_ok=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        with suppress(FileExistsError):  # it is there already, or another process was faster
            (folder / entry.name).symlink_to(entry)
    return folder


def free_port(host: str) -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _await_port(cluster: Cluster, host: str, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and cluster.master.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.1)
    raise TetherError(
        "Spark's master did not start.",
        why=cluster.logs(1000),
        do="See its log; Java 17 or newer must be on the path or in JAVA_HOME.",
    )


def executors_of(worker: int) -> list[int]:
    """Process ids of the executors that a worker has started."""
    backend = "CoarseGrainedExecutorBackend"
    return [pid for pid in descendants(worker) if backend in command_of(pid)]
