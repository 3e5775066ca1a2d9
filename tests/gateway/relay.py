"""A line between two processes that can be cut."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from typing import TYPE_CHECKING

from tests.gateway.serving import SEED

if TYPE_CHECKING:
    from collections.abc import Iterator


class Relay:
    """Passes bytes on between clients and a server, and breaks off after so many of them."""

    def __init__(self, target: tuple[str, int], dice: random.Random, cuts: int) -> None:
        self._target, self._dice, self.cuts_left = target, dice, cuts
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Break all lines off, whatever is on its way; gives how many there were."""
        ends = list(self._open)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        return len(ends) // 2

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:  # the server is away
                    near.close()
                    continue
                self._open |= {near, far}
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
        self._open -= {one, other}
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relay(address: str, cuts: int = 0) -> Iterator[Relay]:
    """A relay before a server's address, which cuts so often by itself."""
    print(f"seed {SEED}")
    host, port = address.rpartition("//")[2].split(":")
    one = Relay((host, int(port)), random.Random(SEED), cuts)
    try:
        yield one
    finally:
        one.listener.close()
