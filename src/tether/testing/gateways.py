"""A gateway as a real process that tests start, kill and start again on the same store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tether.core.errors import TetherError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# The command by itself: ``tether`` loads all others, too, which takes longer than a gateway.
_PROGRAM = "import typer; from tether.cli.gateway import gateway; typer.run(gateway)"


class GatewayProcess:
    """A gateway at one address, whatever becomes of its process.

    Args:
        store: Its folder.
        options: More options of ``tether gateway``.
        env: More variables of its environment.
    """

    def __init__(self, store: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self._store, self._options, self._env = store, options, dict(env or {})
        self.flight = self.http = ""
        self.told: dict[str, Any] = {}
        """The process's own report when it was ready."""
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start it, at the same ports as before."""
        listen = self.flight.rpartition("//")[2] or "127.0.0.1:0"
        http = self.http.rpartition("//")[2] or "127.0.0.1:0"
        command = [sys.executable, "-c", _PROGRAM, "--store", str(self._store)]
        command += ["--listen", listen, "--http", http, *self._options]
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._env},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise TetherError("The gateway did not start.", why=self._process.communicate()[1])
        self.told = json.loads(line)
        self.flight, self.http = self.told["flight"], self.told["http"]

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        """SIGTERM: it ends in good order."""
        if self.running:
            self.signal(signal.SIGTERM)
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.communicate(timeout=60)


@contextmanager
def gateway(
    store: Path, *options: str, env: Mapping[str, str] | None = None
) -> Iterator[GatewayProcess]:
    """A gateway that is killed at the end of the block, if it still runs."""
    process = GatewayProcess(store, *options, env=env)
    try:
        yield process
    finally:
        if process.running:
            process.kill()
