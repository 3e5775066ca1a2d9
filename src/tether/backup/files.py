"""Durable writes to a local file system.

After a power cut a write is either there or recognised as incomplete. Only the store's own files are
used: a link, a pipe or a device in place of a file is never opened, and a directory that anybody may
write to is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING

from tether.core.errors import BackupError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FOLDER = {errno.ENOTDIR, errno.EEXIST}
_IOV_MAX = 1024  # buffers that the kernel takes in one call


def storage_error(what: str, error: OSError, path: Path) -> BackupError:
    """An error that explains a failure of the file system."""
    why = f"{path}: {error.strerror or error}."
    if error.errno in _FULL:
        do = "Free space on that disk or raise its quota; nothing that was durable is lost."
    elif error.errno in _FORBIDDEN:
        do = "Give the user that runs Spark's driver and executors the right to write there."
    elif error.errno in _NO_FOLDER:
        do = "Name a folder for backups; a file is in its place."
    elif error.errno == errno.ELOOP:
        why = f"{path} is a link, and could lead anywhere."
        do = "Find out who made it, and remove it; backups are plain files in plain folders."
    else:
        do = "Check the disk and its mount; then restart the query."
    return BackupError(what, why=why, do=do)


@contextlib.contextmanager
def explained(what: str, path: Path) -> Iterator[None]:
    """Turn a failure of the file system inside the block into a ``BackupError``."""
    try:
        yield
    except OSError as error:
        raise storage_error(what, error, path) from error


def open_file(path: Path, flags: int) -> int:
    """Open a plain file, never through a link; a new one is readable by its owner only.

    Raises:
        OSError: ``ELOOP`` for a link, ``EISDIR`` for a folder, ``EINVAL`` for anything else.
    """
    # Without O_NONBLOCK, opening a pipe in place of a file would block for ever.
    safely = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags | safely, 0o600)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"{os.strerror(number)}: not a plain file", str(path))
    return descriptor


@contextlib.contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """The descriptor of a plain file, closed at the end; see :func:`open_file`."""
    descriptor = open_file(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_whole(path: Path) -> bytes:
    """All bytes of a plain file."""
    with open(open_file(path, os.O_RDONLY), "rb", buffering=0) as file:
        return file.readall()


def try_lock(descriptor: int) -> bool:
    """Take the kernel's exclusive lock on an open file, at once or not at all."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_private(folder: Path) -> None:
    """Refuse a folder of another user, or one that users outside its group may write to.

    Anybody who can write there could change the state, or replace files by links. The group is trusted,
    because many systems give every user a group of their own.

    Raises:
        BackupError: says which, and what to do.
    """
    found = folder.stat()
    if found.st_mode & stat.S_IWOTH:
        raise BackupError(
            f"Backups cannot be kept in {folder}.",
            why=f"Every user of the machine may write there: its mode is "
            f"{stat.S_IMODE(found.st_mode):04o}.",
            do=f"Take that right away (chmod o-w {folder}), after a look at what is in it; or name "
            "a folder in it that does not exist yet.",
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise BackupError(
            f"Backups cannot be kept in {folder}.",
            why=f"It belongs to the user {found.st_uid}, and this process runs as {os.geteuid()}.",
            do="Give it to the user that runs Spark's driver and executors, or name a folder in it "
            "that does not exist yet.",
        )


def check_no_links(root: Path, folder: str) -> None:
    """Refuse a folder whose path below a root contains a link.

    Raises:
        OSError: ``ELOOP``.
    """
    path = root
    for part in folder.split("/"):
        path /= part
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, durably, for its owner only."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):  # another task has created it
        folder.mkdir(mode=0o700)
    sync_folder(folder.parent)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def write_all(descriptor: int, buffers: Sequence[bytes | pa.Buffer]) -> int:
    """Write buffers at the file's position, in one call where the kernel takes them all.

    Returns:
        The number of bytes written: all of them.
    """
    views = [memoryview(buffer) for buffer in buffers]
    total = first = 0
    while first < len(views):
        written = os.writev(descriptor, views[first : first + _IOV_MAX])
        total += written
        while first < len(views) and written >= len(views[first]):
            written -= len(views[first])
            first += 1
        if first < len(views):
            views[first] = views[first][written:]
    return total


def append_durably(descriptor: int, buffers: Sequence[bytes | pa.Buffer]) -> int:
    """Append to a file and wait for the disk; on failure remove what was written.

    Returns:
        Offset of the first byte written.
    """
    start = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        write_all(descriptor, buffers)
        os.fdatasync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):  # best effort: readers recognise a torn tail anyway
            os.ftruncate(descriptor, start)
        raise
    return start


def create_durably(path: Path, buffers: Sequence[bytes | pa.Buffer]) -> None:
    """Create a file that must not exist yet, content and name both durable.

    It is locked until both are durable. Otherwise another task could append to it and report its bytes
    as durable before the file's name is, or lose them when this write fails.
    """
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        try:
            if not try_lock(descriptor):  # only its creator locks an empty file
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
            write_all(descriptor, buffers)
            os.fsync(descriptor)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a file so that a reader sees all of the old content or all of the new.

    Only one process at a time may do this to a path: the holder of the store's lock.
    """
    scratch = path.with_name(path.name + ".tmp")
    with contextlib.suppress(FileNotFoundError):
        scratch.unlink()  # left by a writer that was killed
    create_durably(scratch, [data])
    scratch.replace(path)
    sync_folder(path.parent)


def read_exactly(descriptor: int, target: memoryview, offset: int) -> int:
    """Fill ``target`` from a file; fewer bytes are returned only at the file's end."""
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target[done:]], offset + done)
        if not count:
            break
        done += count
    return done
