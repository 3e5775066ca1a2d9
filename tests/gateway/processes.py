"""A gateway as a real process that tests start, kill and start again on the same store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = "from tether.cli.app import main; main()"


class GatewayProcess:
    """A gateway at one address, whatever becomes of its process."""

    def __init__(self, store: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self._store, self._options, self._env = store, options, env or {}
        self.flight = self.http = ""
        self.told: dict[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        listen = self.flight.removeprefix("grpc://") or "127.0.0.1:0"
        http = self.http.removeprefix("http://") or "127.0.0.1:0"
        command = [sys.executable, "-c", PROGRAM, "gateway", "--store", str(self._store)]
        command += ["--listen", listen, "--http", http, *self._options]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._env},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._process.communicate()[1])
        self.told = json.loads(line)
        self.flight, self.http = self.told["flight"], self.told["http"]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._wait()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """SIGTERM: it ends in good order."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.communicate(timeout=60)


@contextmanager
def gateway(store: Path, *options: str, **more: Any) -> Iterator[GatewayProcess]:
    process = GatewayProcess(store, *options, **more)
    try:
        yield process
    finally:
        if process._process is not None and process._process.poll() is None:
            process.kill()
