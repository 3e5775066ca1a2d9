"""Backups in a local directory: the default, and the fastest.

Layout below the root, folders 0700 and files 0600::

    lock  manifest.json  commits.log  commits.copy
    slots/<operator>/<slot>/<epoch>.<sequence>.<attempt>.<lineage>.log

A full frame starts a new log; the partial ones of the same lineage follow it there. So a
generation of a slot is one file most of the time, and dropping it is one ``unlink``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tether.backup.files import (
    append_durably,
    check_no_links,
    check_private,
    create_durably,
    explained,
    make_folder,
    opened,
    read_exactly,
    read_whole,
    replace_durably,
    storage_error,
    sync_folder,
    try_lock,
)
from tether.backup.framecodec import Compression, decode_frame, digest_of, encode_frame
from tether.backup.frames import Frame, FrameHeader, FrameRef
from tether.backup.framescan import ends_with_whole_frame, scan_frames
from tether.backup.local_commits import COPY, LOG, LocalCommits, read_log
from tether.backup.local_lock import LocalLock
from tether.backup.log_owner import LogOwner
from tether.backup.manifest import Manifest, decode_manifest, encode_manifest
from tether.backup.names import MANIFEST, SLOTS, checked_frame_name, path_name, slot_folder
from tether.backup.protocol import (
    checked_bytes,
    frame_exists,
    missing_manifest,
    require_lock,
    unreadable_frame,
)
from tether.core.errors import BackupError, BackupUnreadableError
from tether.core.ids import Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tether.backup.commitlog import CommitLog

_GONE_FOR_GOOD = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EIO}
"""Failures to read that another attempt will not solve."""


class LocalStore(LogOwner):
    """A backup store in a directory.

    Nothing is created before something is written, so reading a store does not change it.

    Args:
        root: The directory; on a cluster one that all executors and the driver share.
        compression: Of the state in new frames. ``"none"`` by default: a plain frame is written without
            a copy. Measured in turns on one disk, a durable append of 50 MB took 120 to 180 ms plain (a
            bare write 80 to 175), 230 to 290 by lz4, 370 to 400 by zstd.
        compact_bytes: Length from which on the commit log is compacted.

    Example:
        >>> import tempfile
        >>> store = LocalStore(Path(tempfile.mkdtemp()))
        >>> with store.lock("doctest"):
        ...     store.write_manifest(Manifest.new(query_id="q", first_epoch=0, fingerprint={}))
        >>> store.read_manifest().query_id
        'q'
    """

    def __init__(
        self, root: Path, *, compression: Compression = "none", compact_bytes: int = 256 << 10
    ) -> None:
        super().__init__()
        self._root = Path(root).absolute()
        self._compression: Compression = compression
        self._compact_bytes = compact_bytes
        self._dropped: dict[str, set[int]] = {}
        self._synced: set[str] = set()
        if self._root.exists() and not self._root.is_dir():
            raise BackupError(
                f"Backups cannot be kept in {self._root}.",
                why="It is a file, not a directory.",
                do="Name a directory for backups.",
            )

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self._root, self._compression, self._compact_bytes)

    def __repr__(self) -> str:
        return f"LocalStore({str(self._root)!r})"

    # --- frames ------------------------------------------------------------------------------

    def append(
        self, header: FrameHeader, parts: Mapping[str, Sequence[pa.RecordBatch]]
    ) -> FrameRef:
        """Write a frame; see :meth:`BackupStore.append`."""
        buffers = encode_frame(header, parts, compression=self._compression)
        length = sum(map(len, buffers))
        folder = slot_folder(header.operator, header.slot)
        what = f"The backup of slot {header.slot} of {header.operator!r} could not be written."
        with explained(what, self._root / folder):
            self._make_folder(folder)
            if header.kind != "full":
                shared = self._append_to_newest(folder, path_name(header.lineage), buffers)
                if shared is not None:
                    return FrameRef(*shared, length, digest_of(buffers[0]))
            attempt, lineage = path_name(header.attempt), path_name(header.lineage)
            order = f"{header.epoch:012d}.{header.sequence:06d}"
            name = f"{folder}/{order}.{attempt}.{lineage}.log"
            try:
                create_durably(self._root / name, buffers)
            except FileExistsError:
                raise frame_exists(name) from None
        return FrameRef(name, 0, length, digest_of(buffers[0]))

    def _make_folder(self, folder: str) -> None:
        make_folder(self._root / folder)
        if folder not in self._synced:
            check_private(self._root)
            check_no_links(self._root, folder)
            # Another process may have created the folder, and not have made it durable yet.
            for parent in (self._root / folder).parents[:3]:
                sync_folder(parent)
            self._synced.add(folder)

    def _append_to_newest(
        self, folder: str, lineage: str, buffers: Sequence[bytes | pa.Buffer]
    ) -> tuple[str, int] | None:
        """Append to the lineage's newest log; ``None`` if there is none fit to be appended to."""
        logs = [log.name for log in (self._root / folder).glob(f"*.{lineage}.log")]
        if not logs:
            return None
        name = f"{folder}/{max(logs)}"
        with (
            contextlib.suppress(FileNotFoundError),
            opened(self._root / name, os.O_RDWR) as descriptor,
        ):
            # Empty: its creator is about to lock it. Locked: its creator, or a task that was given up,
            # is still writing. Not linked: the driver has dropped it since it was listed, and this frame
            # would be deleted with it.
            if not os.fstat(descriptor).st_size or not try_lock(descriptor):
                return None
            if os.fstat(descriptor).st_nlink and ends_with_whole_frame(descriptor):
                return name, append_durably(descriptor, buffers)
        return None

    def read(self, ref: FrameRef) -> Frame:
        """Read a frame back; see :meth:`BackupStore.read`."""
        path = self._root / checked_frame_name(ref.name)
        try:
            with opened(path, os.O_RDONLY) as descriptor:
                if ref.offset + ref.length > os.fstat(descriptor).st_size:
                    raise unreadable_frame(ref, "It is torn, or its log was cut short.")
                buffer = pa.allocate_buffer(ref.length)
                read_exactly(descriptor, memoryview(buffer), ref.offset)
        except OSError as error:
            if error.errno in _GONE_FOR_GOOD:
                raise unreadable_frame(ref, f"{error.strerror}.") from error
            raise storage_error("A backup frame could not be read.", error, path) from error
        return decode_frame(checked_bytes(ref, buffer))

    def frames(
        self, operator: str | None = None, slot: Slot | None = None
    ) -> Iterator[tuple[FrameRef, FrameHeader | BackupUnreadableError]]:
        """Every frame in the store; see :meth:`BackupStore.frames`."""
        pattern = (
            f"{'*' if operator is None else path_name(operator)}/{'*' if slot is None else slot}"
        )
        for path in sorted((self._root / SLOTS).glob(f"{pattern}/*.log")):
            name = path.relative_to(self._root).as_posix()
            try:
                with opened(path, os.O_RDONLY) as descriptor:
                    for offset, length, header, digest in scan_frames(descriptor):
                        yield FrameRef(name, offset, length, digest), header
            except FileNotFoundError:
                continue  # dropped meanwhile
            except OSError as error:
                yield FrameRef(name, 0, 0), unreadable_frame(FrameRef(name, 0, 0), str(error))

    def drop(self, refs: Iterable[FrameRef]) -> None:
        """Delete frames; a log goes when all of its frames were dropped through this object."""
        require_lock(self._lock, "drop frames")
        touched: dict[str, None] = {}
        for ref in refs:
            touched[checked_frame_name(ref.name)] = None
            self._dropped.setdefault(ref.name, set()).add(ref.offset)
        for name in touched:
            with explained("An old backup could not be deleted.", self._root / name):
                check_no_links(self._root, name)
                self._drop_log(name)

    def _drop_log(self, name: str) -> None:
        path = self._root / name
        with contextlib.suppress(FileNotFoundError), opened(path, os.O_RDWR) as descriptor:
            if not try_lock(descriptor):
                return  # being appended to, so it is not all old; a later drop tries again
            if any(found.offset not in self._dropped[name] for found in scan_frames(descriptor)):
                return
            path.unlink()
        del self._dropped[name]

    # --- commits, manifest, lock -------------------------------------------------------------

    def _open_commits(self) -> LocalCommits:
        return LocalCommits(self._root, self._compact_bytes)

    def read_commits(self) -> CommitLog:
        """Read the commit log; see :meth:`BackupStore.read_commits`."""
        return read_log(self._root)

    def read_manifest(self) -> Manifest | None:
        """The manifest; see :meth:`BackupStore.read_manifest`."""
        path = self._root / MANIFEST
        with explained("The manifest cannot be read.", path):
            try:
                return decode_manifest(read_whole(path))
            except FileNotFoundError:
                if any((self._root / name).exists() for name in (LOG, COPY, SLOTS)):
                    raise missing_manifest(str(self._root)) from None
                return None

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest; see :meth:`BackupStore.write_manifest`."""
        require_lock(self._lock, "write the manifest")
        with explained("The manifest could not be written.", self._root / MANIFEST):
            replace_durably(self._root / MANIFEST, encode_manifest(manifest))

    def lock(self, owner: str) -> LocalLock:
        """Become the only driver on this directory, which is created if necessary."""
        with explained(f"Backups cannot be kept in {self._root}.", self._root):
            make_folder(self._root)
            check_private(self._root)
        lock = LocalLock(self._root / "lock", owner)
        self._owned_by(lock)
        return lock

    def bytes_used(self) -> int:
        """Bytes that the store's files hold."""
        total = 0
        for path in self._root.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size if path.is_file() else 0
        return total


def _reopen(root: Path, compression: Compression, compact_bytes: int) -> LocalStore:
    return LocalStore(root, compression=compression, compact_bytes=compact_bytes)
