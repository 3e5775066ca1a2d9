"""A machine whose network cable can be pulled: a network namespace, joined to this one by one link."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tether.core.errors import TetherError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class CuttableHost:
    """A namespace that stands for another machine.

    Attributes:
        outside: This side's address: where a master and a driver must listen.
        inside: The other side's: where a worker must.
        launcher: What to put before a command so that it runs over there.
    """

    outside: str
    inside: str
    launcher: tuple[str, ...]
    _far_end: tuple[str, ...]

    def cut(self) -> None:
        """Pull the cable at the far end: on this side packets vanish, and nobody is told."""
        _ip(*self._far_end, "down")

    def mend(self) -> None:
        """Put it back."""
        _ip(*self._far_end, "up")


@contextmanager
def cuttable_host() -> Iterator[CuttableHost]:
    """Make a namespace with a link to it; remove both at the end of the block.

    Raises:
        TetherError: There are no network namespaces here, or this user may not make them.
    """
    number = os.getpid() % 250 + 1
    name, link, peer = f"tether-{os.getpid()}", f"tth{number}a", f"tth{number}b"
    outside, inside = f"10.213.{number}.1", f"10.213.{number}.2"
    try:
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", peer)
        _ip("link", "set", peer, "netns", name)
        _ip("addr", "add", f"{outside}/30", "dev", link)
        _ip("link", "set", link, "up")
        _ip("-n", name, "addr", "add", f"{inside}/30", "dev", peer)
        _ip("-n", name, "link", "set", peer, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        far_end = ("-n", name, "link", "set", peer)
        yield CuttableHost(outside, inside, ("ip", "netns", "exec", name), far_end)
    finally:
        for words in (("link", "del", link), ("netns", "del", name)):
            subprocess.run(["ip", *words], capture_output=True, check=False)  # noqa: S603, S607


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)  # noqa: S603, S607
    except FileNotFoundError as error:
        raise _none(str(error)) from error
    if done.returncode != 0:
        raise _none(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _none(why: str) -> TetherError:
    return TetherError(
        "A network that can be cut is not to be had here.",
        why=why,
        do="Run as a user that may make network namespaces, or leave this fault out.",
    )
