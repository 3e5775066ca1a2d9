"""A disk that forgets: what is left of a directory if the power fails after any one operation.

File systems promise this much and no more: the content of a file is on disk once the file was synced,
and a name in a folder once the folder was. What was not synced may be there or not, each for itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_SEES = ["open", "writev", "write", "pwrite", "ftruncate", "mkdir", "replace", "rename", "unlink"]
_SYNCS = ["fsync", "fdatasync"]


class Moment(NamedTuple):
    """What was where after an operation; folders and files by number."""

    after: str
    claims: int
    """How many promises had been made by then."""
    synced_content: dict[int, bytes]
    content: dict[int, bytes]
    synced_names: dict[int, dict[str, int]]
    names: dict[int, dict[str, int]]


class ForgetfulDisk:
    """Watches all operations below a folder, and can show what a power cut would have left.

    Args:
        root: The folder; what is in it at the start is durable.
        patch: Puts the watchers in place of the operations of ``os``.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root, self.claims = root, 0
        self.moments: list[Moment] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._kinds: dict[int, bool] = {}
        self._looking = False
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._look()
        self._synced_content, self._synced_names = dict(self._content), dict(self._names)
        for name in _SEES + _SYNCS:
            patch.setattr(os, name, self._watched(name, getattr(os, name)))

    def promise(self) -> None:
        """From now on, what was done so far must outlive every power cut."""
        self.claims += 1
        self._note("promise")

    def _watched(self, name: str, really: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            result = really(*args, **named)
            if not self._looking:
                self._see(name, args)
            return result

        return call

    def _see(self, name: str, args: tuple[Any, ...]) -> None:
        self._looking = True
        try:
            if name in _SYNCS:
                found = os.fstat(args[0])
                number = self._numbers.get((found.st_dev, found.st_ino))
                if number is not None:
                    self._sync(number)
            self._look()
            self._note(f"{name} {args[0]}")
        finally:
            self._looking = False

    def _sync(self, number: int) -> None:
        if number in self._names:
            self._synced_names[number] = dict(self._names[number])
        else:
            self._synced_content[number] = self._content[number]

    def _look(self) -> None:
        """Find out what is in the folder now."""
        alive = set()
        self._names, self._content = {}, {}
        for folder, folders, files in os.walk(self._root):
            here = self._number(Path(folder))
            alive.add(here)
            self._names[here] = {}
            for name in folders + files:
                number = self._number(Path(folder) / name)
                alive.add(number)
                self._names[here][name] = number
                if name in files:
                    self._content[number] = (Path(folder) / name).read_bytes()
        # The number of a file that is gone may be given to another one.
        self._numbers = {key: n for key, n in self._numbers.items() if n in alive}

    def _number(self, path: Path) -> int:
        found = path.lstat()
        return self._numbers.setdefault((found.st_dev, found.st_ino), _next_number())

    def _note(self, after: str) -> None:
        self.moments.append(
            Moment(
                after,
                self.claims,
                dict(self._synced_content),
                dict(self._content),
                dict(self._synced_names),
                dict(self._names),
            )
        )


_numbers = iter(range(1 << 62))


def _next_number() -> int:
    return next(_numbers)


def restored(moment: Moment, target: Path, *, names: bool, content: bool) -> None:
    """Make what a power cut leaves.

    Args:
        moment: When it happens.
        target: Where to make it.
        names: Whether names that were not synced happen to be on the disk.
        content: Whether content that was not synced happens to be.
    """
    known = {**moment.synced_names, **moment.names} if names else moment.synced_names
    bytes_of = {**moment.synced_content, **moment.content} if content else moment.synced_content

    def make(number: int, path: Path) -> None:
        if number in moment.names or number in moment.synced_names:
            path.mkdir(exist_ok=True)
            for name, below in known.get(number, {}).items():
                make(below, path / name)
        else:
            path.write_bytes(bytes_of.get(number, b""))
            path.chmod(0o600)

    root = next(iter(moment.names))
    make(root, target)
