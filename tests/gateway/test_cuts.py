"""The line between a producer and a gateway is cut, again and again: every row still arrives, once."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.gateway.test_server import SEED, served, there

from tether.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = pa.schema({"id": pa.int64()})


class Relay:
    """Passes bytes on between clients and a server, and breaks off after so many of them."""

    def __init__(self, target: tuple[str, int], dice: random.Random, cuts: int) -> None:
        self._target, self._dice, self.cuts_left = target, dice, cuts
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self._target)
                left = [self._dice.randint(2_000, 60_000) if self.cuts_left > 0 else 1 << 60]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._pass, args=(one, other, left), daemon=True
                    ).start()

    def _pass(self, one: socket.socket, other: socket.socket, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(4096):
                left[0] -= len(data)
                if left[0] < 0:
                    self.cuts_left -= 1
                    break  # what was read is lost, with whatever is behind it
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relay(address: str, cuts: int) -> Iterator[Relay]:
    print(f"seed {SEED}")
    host, port = address.rpartition("//")[2].split(":")
    one = Relay((host, int(port)), random.Random(SEED), cuts)
    try:
        yield one
    finally:
        one.listener.close()


@pytest.mark.parametrize("gamma", [0, 7, 500])
def test_every_row_arrives_once_over_a_line_that_is_cut(tmp_path: Path, gamma: int) -> None:
    with served(tmp_path / "store", max_lost=100) as gateway, relay(gateway.flight, 5) as line:
        sent = 0
        with Producer(line.address, "s", SCHEMA, id="p", max_unacked=gamma) as producer:
            while line.cuts_left > 0 or sent < 500:
                producer.send(pa.record_batch([list(range(sent, sent + 50))], schema=SCHEMA))
                sent += 50
            producer.flush()
            assert producer.reconnects >= 2
        assert there(gateway.flight) == list(range(sent))
