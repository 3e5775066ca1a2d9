"""A task's connection to Spark neither holds small pieces back nor waits with acknowledging them."""

from __future__ import annotations

import os
import socket
from contextlib import closing

import pytest

from tether.spark.tasks.pipe import acknowledge_at_once

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")


def _holds_back(connection: socket.socket) -> bool:
    return not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_connections_of_the_loopback_are_hurried_and_stay_open() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        mine = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
        with closing(mine), closing(theirs):
            assert _holds_back(mine)
            acknowledge_at_once()
            assert not _holds_back(mine)
            assert not _holds_back(theirs)
            mine.sendall(b"still there")
            assert theirs.recv(100) == b"still there"


def test_a_default_timeout_of_somebodys_does_not_reach_the_connection() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        mine = socket.create_connection(listening.getsockname())
        with closing(mine):
            socket.setdefaulttimeout(5.0)
            try:
                acknowledge_at_once()
            finally:
                socket.setdefaulttimeout(None)
            assert os.get_blocking(mine.fileno())


def test_whatever_else_is_open_is_left_alone() -> None:
    first, second = socket.socketpair()
    reading, writing = os.pipe()
    with (
        closing(first),
        closing(second),
        closing(socket.socket()) as alone,
        closing(socket.socket(type=socket.SOCK_DGRAM)) as datagrams,
        os.fdopen(reading, "rb") as reader,
        os.fdopen(writing, "wb") as writer,
    ):
        datagrams.connect(("127.0.0.1", 9))
        acknowledge_at_once()
        assert _holds_back(alone)
        first.sendall(b"x")
        assert second.recv(1) == b"x"
        writer.write(b"y")
        writer.flush()
        assert reader.read(1) == b"y"
