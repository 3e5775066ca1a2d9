"""The pipe between Spark and a Python worker, without the pauses that TCP makes in it.

Spark writes a task's beginning to its worker in small pieces, over a socket of the loopback. TCP holds a
small piece back until the one before is acknowledged, and the receiver waits 40 ms with that, in case it
has something to send along. Neither side is to blame, and together they make every task of Python's wait
for 40 ms before its first row.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux has it


def acknowledge_at_once() -> None:
    """Let this process's loopback connections acknowledge what they got now, and send what they have.

    Called in a task before it reads its first row. A worker has one such connection, to Spark. Does
    nothing where the system has no such option, or where Spark was told to use another kind of socket.
    """
    # With a default timeout, to look at a socket is to make it one that does not block.
    if _QUICKACK is None or socket.getdefaulttimeout() is not None:
        return
    with suppress(OSError):  # no /proc here
        for entry in list(Path("/proc/self/fd").iterdir()):
            with suppress(OSError):  # not a socket, or one that is not connected
                _hurry(int(entry.name))


def _hurry(descriptor: int) -> None:
    assert _QUICKACK is not None
    connection = socket.socket(fileno=descriptor)
    try:
        if connection.type == socket.SOCK_STREAM and _is_loopback(connection):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
    finally:
        connection.detach()  # it is not ours to close


def _is_loopback(connection: socket.socket) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    host = str(connection.getpeername()[0])
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"
