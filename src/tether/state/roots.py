"""Chooses the directory of arenas, and removes arenas that cannot be used any more."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from tether.core.errors import ArenaError
from tether.state.arena import complete, only_arena, recorded_identity
from tether.state.identity import Owner, boot_id
from tether.state.lock import DirectoryLock

if TYPE_CHECKING:
    from tether.state.identity import Identity

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (checked for owner and mode below)


def arena_root(
    need_bytes: int, *, fallback: Path | str, preferred: Path | str | None = None
) -> Path:
    """Choose and make the directory for this user's arenas.

    Args:
        need_bytes: Memory that the state is expected to take on this node.
        fallback: Used when shared memory is absent, not writable or too small.
        preferred: A directory that the user asked for: this one, or an error.

    Returns:
        A directory within the chosen one that only this user can read.

    Raises:
        ArenaError: The chosen directory cannot be used, or has too little room.
    """
    name = f"tether-{os.geteuid()}"
    if preferred is not None:
        return _usable(Path(preferred) / name, need_bytes)
    if os.access(_SHARED_MEMORY, os.W_OK) and free_bytes(_SHARED_MEMORY) >= need_bytes:
        return _usable(_SHARED_MEMORY / name, need_bytes)
    return _usable(Path(fallback) / name, need_bytes)


def arena_directory(root: Path, identity: Identity) -> Path:
    """The directory of one slot's arena below a root; readable, and unique for the slot."""
    whole = f"{identity.query}\0{identity.operator}\0{identity.slot}"
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", identity.operator)[:32]
    return root / f"{readable}-{identity.slot}-{digest}"


def sweep(root: Path) -> list[Path]:
    """Remove arenas that can never be used again.

    That is: those from before the machine was last started, those whose owner (an executor) is
    dead, and those whose maker or remover was killed before it had finished. An arena in use is
    left alone, and so is every directory that holds anything but an arena.

    Returns:
        The directories that were removed.
    """
    removed = []
    for directory in sorted(root.iterdir()) if root.is_dir() else []:
        if directory.is_symlink() or not directory.is_dir() or not only_arena(directory):
            continue
        lock = DirectoryLock(directory)
        try:
            lock.acquire(wait=0)
        except (ArenaError, OSError):
            continue
        try:
            if _useless(directory):
                shutil.rmtree(directory, ignore_errors=True)
                removed.append(directory)
        finally:
            lock.release()
    return removed


def _useless(directory: Path) -> bool:
    record = recorded_identity(directory)
    if record is None or not complete(directory) or record.get("boot") != boot_id():
        return True
    owner = record.get("owner")
    return owner is not None and not Owner(**owner).alive()


def _usable(root: Path, need_bytes: int) -> Path:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = root.lstat()
    except OSError as error:
        raise _unusable(root, str(error)) from error
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise _unusable(root, "it is a link, or belongs to another user")
    if stat.S_IMODE(info.st_mode) & 0o077:
        root.chmod(0o700)  # state may hold private data
    if not os.access(root, os.W_OK):
        raise _unusable(root, "it is not writable")
    free = free_bytes(root)
    if free < need_bytes:
        raise _unusable(root, f"{need_bytes:,} bytes are needed and {free:,} are free")
    return root


def free_bytes(path: Path) -> int:
    """Bytes that a user may still write on the file system of a path; 0 where there is none."""
    try:
        info = os.statvfs(path)
    except OSError:
        return 0
    return info.f_bavail * info.f_frsize


def _unusable(root: Path, why: str) -> ArenaError:
    return ArenaError(
        f"Resident state cannot be kept in {root}.",
        why=why,
        do="Name another arena directory, with room for the state, that this user owns.",
    )
