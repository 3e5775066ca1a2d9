"""Several processes behind one address: Python's threads share one core, processes do not.

Each process has a store, a port and some of the producers of its own: a producer's numbers belong to
one of them, found by its id. Users name the first one's address; a producer that another one has is told
where that is and goes there, so rows take the direct way. One without an id is served by the first.
Readers ask for all addresses, and read each like a gateway. The processes share what may be lost.

Why not one port for all (SO_REUSEPORT): Arrow Flight's server turns it off.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.backup.files import make_folder, replace_durably
from tether.core.errors import BadValueError
from tether.sources.gateway.config import GatewayConfig, host_and_port
from tether.sources.gateway.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Callable

_PROGRAM = "from tether.sources.gateway.processes import part; part()"
END_SECONDS = 60.0
"""Longest time, in seconds, for a process to end in good order."""
LOOK_SECONDS = 0.2
"""How often it looks whether all processes are there."""
_PATHS = ("store", "certificate", "key")


def serve_together(config: GatewayConfig, processes: int, told: Callable[[str], None]) -> None:
    """Run several processes until SIGTERM or SIGINT; one that dies is started again on its store.

    Args:
        config: Settings of the whole gateway.
        processes: How many.
        told: Called once, when all are open, with one line of JSON.
    """
    check_processes(config, processes)
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    parts = [_Part(part_config(config, at, processes)) for at in range(processes)]
    try:
        peers = [part.open() for part in parts]
        lost = [part.join(peers) for part in parts]
        told(json.dumps(_described(parts, lost)))
        while not ending.wait(LOOK_SECONDS):
            for part in parts:
                if part.gone:
                    part.open()
                    part.join(peers)
    finally:
        for part in parts:
            part.end()


def check_processes(config: GatewayConfig, processes: int) -> None:
    """Refuse what several processes cannot do, or did otherwise before.

    Raises:
        GatewayError: The store was made by another number of processes.
    """
    if not config.streams:
        raise BadValueError(
            "Several processes serve only streams that are named at the start.",
            why="A query reads all of them, and each must have the stream.",
            do="Name streams: --stream 'clicks=user bigint, amount double'.",
        )
    make_folder(config.store)
    path = config.store / "parts.json"
    known = json.loads(path.read_text()) if path.is_file() else None
    if known is None and not (config.store / "gateway.json").exists():
        replace_durably(path, json.dumps(processes).encode())
    elif known != processes:
        raise GatewayError(
            f"The store {config.store} was made by {known or 1} processes, not by {processes}.",
            why="Each producer's numbers are with one of them.",
            do=f"Start it with --processes {known or 1}, or name another folder.",
        )


def part_config(config: GatewayConfig, part: int, parts: int) -> GatewayConfig:
    """Settings of one of the processes: its share of what may be lost, and an address of its own.

    Example:
        >>> from pathlib import Path
        >>> whole = GatewayConfig(store=Path("s"), max_lost=10_000, streams={"s": "id bigint"})
        >>> part_config(whole, 1, 4).max_lost, part_config(whole, 1, 4).store.name
        (2500, 'part-1')
    """

    def share(amount: float) -> float:
        return amount if math.isinf(amount) else math.floor(amount / parts)

    return dataclasses.replace(
        config,
        store=config.store / f"part-{part}",
        listen=config.listen if part == 0 else f"{host_and_port(config.listen)[0]}:0",
        http=config.http if part == 0 else None,
        max_lost=share(config.max_lost),
        max_unacked=share(config.max_unacked),
        memory_bytes=max(1, config.memory_bytes // parts),
        store_bytes=max(1, config.store_bytes // parts),
        open=False,
        part=part,
        parts=parts,
    )


class _Part:
    """One process, as the one that started it sees it."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[str] | None = None
        self.told: dict[str, Any] = {}

    @property
    def gone(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def open(self) -> str:
        """Start it; gives its own address, the same as before."""
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Through a pipe: the settings hold the token, and anybody can read a command line.
        self._say(_words(self._config))
        self.told = self._hear()
        address: str = self.told["flight"]
        self._config = dataclasses.replace(self._config, listen=address.rpartition("//")[2])
        return address

    def join(self, peers: list[str]) -> dict[str, Any]:
        """Tell it of the others; gives what it found lost."""
        self._say(peers)
        self._hear()
        lost: dict[str, Any] = self.told["lost"]
        return lost

    def end(self) -> None:
        """In good order: its input ends."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.communicate(timeout=END_SECONDS)

    def _say(self, words: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # its last message is read next
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise GatewayError(
                f"Process {self._config.part} of the gateway did not start.",
                do="See what it wrote before this line.",
            )
        found: dict[str, Any] = json.loads(line)
        return found


def part() -> None:
    """One of the processes: settings come on its input, and it ends when that does."""
    from tether.sources.gateway.server import GatewayServer  # noqa: PLC0415 - loads gRPC

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            number, signal.SIG_IGN
        )  # meant for all: the one that started this one ends it
    words = json.loads(sys.stdin.readline())
    paths = {name: Path(words[name]) for name in _PATHS if words[name] is not None}
    server = GatewayServer(GatewayConfig(**{**words, **paths}))
    _tell(server.described())
    peers = json.loads(sys.stdin.readline() or "[]")
    if peers:
        server.gateway.peers = tuple(peers)
        _tell({})
        sys.stdin.readline()
    server.stop()


def _tell(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _words(config: GatewayConfig) -> dict[str, Any]:
    words = dataclasses.asdict(config)
    for name in _PATHS:
        words[name] = None if words[name] is None else str(words[name])
    return words


def _described(parts: list[_Part], lost: list[dict[str, float]]) -> dict[str, Any]:
    names = sorted({name for part in parts for name in part.told["streams"]})
    sums = {name: sum(one.get(name, 0) for one in lost) for name in names}
    return {
        "flight": parts[0].told["flight"],
        "http": parts[0].told["http"],
        "parts": [part.told["flight"] for part in parts],
        "stores": [part.told["store"] for part in parts],
        "streams": names,
        "lost": {name: count for name, count in sums.items() if count},
    }
