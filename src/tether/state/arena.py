"""The directory in which one slot's state is resident.

An arena is made of plain files, so it survives the death of any process that uses it. It must never be
used by another program or query: it records its identity, and the mark that makes it valid (the magic
word of the header) is the last thing written when it is created.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.core.errors import ArenaError
from tether.state.header import LAYOUT, LAYOUT_WORD, MAGIC, MAGIC_WORD, VERSION, Header
from tether.state.lock import NAME as LOCK
from tether.state.lock import DirectoryLock
from tether.state.store import FileStore

if TYPE_CHECKING:
    from pathlib import Path

    from tether.state.identity import Identity, Owner
    from tether.state.segment import Segment

_IDENTITY, _HEAD = "identity.json", "head"
NOTE = "note"
"""Name of the runtime's own bytes beside the state: see ``Arena.note``."""
_OURS = re.compile(rf"{LOCK}|{_HEAD}|{NOTE}|{re.escape(_IDENTITY)}(\.draft)?|p\d{{3}}\..+")
_WAIT = 10.0
_LENGTH = 8  # bytes for the length of a note


@dataclass(frozen=True)
class Refused:
    """An arena is there but cannot be used."""

    reason: str


class Arena:
    """A slot's arena, attached and locked.

    Use ``attach`` or ``create``. Only the holder of the lock may read or change the state; a
    worker that keeps the object between epochs releases the lock and takes it again.

    Example:
        >>> import tempfile, pathlib
        >>> from tether.state import Identity
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> me = Identity(query="q", operator="count", slot=0, slots=2, fingerprint="f")
        >>> Arena.attach(root / "a", me) is None
        True
        >>> Arena.create(root / "a", me).release()
        >>> Arena.attach(root / "a", me).release()
        >>> other = Identity(query="q", operator="count", slot=0, slots=3, fingerprint="f")
        >>> Arena.attach(root / "a", other).reason
        'the operator had another number of slots (2 there, 3 here)'
        >>> shutil.rmtree(root)
    """

    def __init__(self, directory: Path, lock: DirectoryLock) -> None:
        self.directory = directory
        self.store = FileStore(directory)
        self.header = Header(self.store)
        self._lock = lock
        self._head = directory / _HEAD
        self._inode = self._head.stat().st_ino
        self._note: Segment | None = None

    @classmethod
    def attach(
        cls, directory: Path, identity: Identity, *, wait: float = _WAIT
    ) -> Arena | Refused | None:
        """Find the arena of a slot.

        Args:
            directory: Where it would be.
            identity: Whose it must be.
            wait: Seconds to wait for another process to release it.

        Returns:
            The arena, locked; None if there is none; or why the one there cannot be used.

        Raises:
            ArenaError: Another process holds it for longer than ``wait``.
        """
        if not (directory / LOCK).exists():
            return None
        lock = DirectoryLock(directory)
        lock.acquire(wait)
        try:
            found = cls._inspect(directory, identity, lock)
        except BaseException:
            lock.release()
            raise
        if not isinstance(found, Arena):
            lock.release()
        return found

    @classmethod
    def _inspect(
        cls, directory: Path, identity: Identity, lock: DirectoryLock
    ) -> Arena | Refused | None:
        if not complete(directory):
            return None
        recorded = _read_json(directory / _IDENTITY)
        if recorded is None:
            return Refused("it was never finished: its record of identity is missing")
        difference = identity.difference(recorded)
        if difference:
            return Refused(difference)
        arena = cls(directory, lock)
        words = arena.header.slot.words
        if words[MAGIC_WORD] != MAGIC or words[LAYOUT_WORD] != LAYOUT:
            return Refused("it was never finished: its maker was killed")
        return arena

    @classmethod
    def create(
        cls,
        directory: Path,
        identity: Identity,
        *,
        owner: Owner | None = None,
        wait: float = _WAIT,
    ) -> Arena:
        """Make an empty arena in place of one that may be there.

        Args:
            directory: Where.
            identity: Whose it is.
            owner: The process that it must not outlive; None to keep it until the machine stops.
            wait: Seconds to wait for another process to release the one there.

        Raises:
            ArenaError: No room, no permission, or another process holds the one that is there.
        """
        lock = DirectoryLock(directory)
        try:
            lock.acquire(wait)
            _wipe(directory)
            store = FileStore(directory)
            record = {**identity.to_dict(), "owner": vars(owner) if owner else None}
            store.write_text(_IDENTITY, json.dumps(record))
            arena = cls(directory, lock)
            words = arena.header.slot.words
            words[VERSION] = -1
            words[LAYOUT_WORD] = LAYOUT
            words[MAGIC_WORD] = MAGIC  # last: before this the arena is never taken for good
        except OSError as error:
            lock.release()
            raise _not_made(directory, error) from error
        except BaseException:
            lock.release()
            raise
        return arena

    def copy(
        self,
        directory: Path,
        identity: Identity,
        *,
        owner: Owner | None = None,
        wait: float = _WAIT,
    ) -> Arena:
        """Make an arena with the same content, also in the middle of an epoch; its lock must be held.

        Args:
            directory: The directory; an arena that is there is replaced.
            identity: Whose it is.
            owner: As for ``create``.
            wait: As for ``create``.

        Raises:
            ArenaError: No room, no permission, or another process holds the one that is there.
        """
        other = Arena.create(directory, identity, owner=owner, wait=wait)
        try:
            other.header.slot.words[MAGIC_WORD] = 0  # until all of it is there
            for path in sorted(self.directory.iterdir()):
                if re.fullmatch(r"p\d{3}\..+", path.name):
                    shutil.copyfile(path, directory / path.name)
            shutil.copyfile(self._head, directory / f"p000.{_HEAD}")
            (directory / f"p000.{_HEAD}").replace(directory / _HEAD)
            return Arena(directory, other._lock)
        except OSError as error:
            other.destroy()
            raise _not_made(directory, error) from error

    @staticmethod
    def discard(directory: Path, identity: Identity, *, wait: float = _WAIT) -> None:
        """Remove a slot's arena, or what is left of one that was not completed or only partly removed.

        An arena of another identity belongs to another query, and stays.

        Args:
            directory: Where it would be.
            identity: Whose it must be.
            wait: Seconds to wait for another process to release it.

        Raises:
            ArenaError: Another process holds it for longer than ``wait``, or the directory holds
                files that are not an arena's.
        """
        if not directory.is_dir():
            return
        lock = DirectoryLock(directory)
        lock.acquire(wait)
        try:
            recorded = recorded_identity(directory)
            if recorded is None or not identity.difference(recorded):
                _wipe(directory)
                shutil.rmtree(directory, ignore_errors=True)
        finally:
            lock.release()

    def valid(self) -> bool:
        """Whether the directory still holds this arena and not a newer one, or none."""
        try:
            return self._head.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    @property
    def note(self) -> bytes:
        """Bytes of the runtime's own, of any length; never rolled back.

        They are overwritten in place: a process that is killed while writing them leaves neither the old
        nor the new ones. So they must be used only after a later step has been completed.
        """
        data = self._note_segment().data
        length = int.from_bytes(data[:_LENGTH].tobytes(), "little") if len(data) else 0
        return data[_LENGTH : _LENGTH + length].tobytes()

    @note.setter
    def note(self, content: bytes) -> None:
        segment = self._note_segment()
        framed = len(content).to_bytes(_LENGTH, "little") + content
        segment.ensure(len(framed))
        segment.data[: len(framed)] = np.frombuffer(framed, np.uint8)

    def _note_segment(self) -> Segment:
        if self._note is None:
            self._note = self.store.segment(NOTE, "u1", slack=False)
        self._note.refresh()
        return self._note

    def acquire(self, wait: float = _WAIT) -> None:
        """Take the lock again, before the next epoch. Check ``valid`` (or ``refresh``) after it.

        Raises:
            ArenaError: Another process holds it for longer than ``wait`` seconds.
        """
        self._lock.acquire(wait)

    def release(self) -> None:
        """Release the lock: another process may continue with the state."""
        self._lock.release()

    def destroy(self) -> None:
        """Remove the arena; the lock must be held."""
        _wipe(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.release()


def complete(directory: Path) -> bool:
    """Whether an arena has its header: without it nobody can use the rest."""
    return (directory / _HEAD).exists()


def recorded_identity(directory: Path) -> dict[str, Any] | None:
    """The recorded identity and owner of an arena; None if they cannot be read."""
    return _read_json(directory / _IDENTITY)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def only_arena(directory: Path) -> bool:
    """Whether a directory holds (what is left of) an arena and nothing else."""
    names = [path.name for path in directory.iterdir()]
    return LOCK in names and all(_OURS.fullmatch(name) for name in names)


def _not_made(directory: Path, error: OSError) -> ArenaError:
    return ArenaError(
        f"The arena {directory.name} cannot be made.",
        why=str(error),
        do="Check the arena directory's permissions and free space.",
    )


def _wipe(directory: Path) -> None:
    """Remove all but the lock, the header first: without it nothing else is an arena."""
    if not only_arena(directory):
        raise ArenaError(
            f"The arena {directory.name} can be neither made nor removed.",
            why="The directory holds files that are not an arena's.",
            do="Name another directory; this one is left as it is.",
        )
    for path in sorted(directory.iterdir(), key=lambda path: path.name != _HEAD):
        if path.name != LOCK:
            path.unlink(missing_ok=True)
