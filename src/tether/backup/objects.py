"""Backups in an object store: S3, HDFS, Google's or Azure's, through fsspec.

Layout below the URL::

    lock.json  manifest.json
    commits/<number>.commit  commits/<number>.snapshot
    slots/<operator>/<slot>/<epoch>-<sequence>-<attempt>.frame
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tether.backup.framecodec import (
    Compression,
    decode_frame,
    decode_header,
    decode_prefix,
    digest_of,
    encode_frame,
)
from tether.backup.frames import Frame, FrameHeader, FrameRef
from tether.backup.log_owner import LogOwner
from tether.backup.manifest import Manifest, decode_manifest, encode_manifest
from tether.backup.names import MANIFEST, SLOTS, checked_frame_name, path_name, slot_folder
from tether.backup.object_commits import COMMITS, ObjectCommits, read_log
from tether.backup.object_lock import ObjectLock
from tether.backup.objectio import ObjectFolder
from tether.backup.protocol import (
    checked_bytes,
    frame_exists,
    missing_manifest,
    require_lock,
    unreadable_frame,
)
from tether.core.errors import BackupUnreadableError
from tether.core.ids import Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from tether.backup.commitlog import CommitLog

_MOST_HEADS = 4096  # bytes
_TOGETHER = 128  # objects asked for at once


class ObjectStore(LogOwner):
    """A backup store below a URL.

    Args:
        url: For instance ``s3://bucket/prefix``; the bucket must exist.
        storage_options: For fsspec's file system: credentials, endpoint, ...
        compression: Of the state in new frames; ``"lz4"`` by default, because a network is slower than
            the compression.
        fold_every: Commit records after which they are folded into one object.
        lease_seconds: How long the lock of a dead driver blocks the next one.

    Example:
        >>> store = ObjectStore("memory://doctest-objects")
        >>> with store.lock("doctest"):
        ...     store.write_manifest(Manifest.new(query_id="q", first_epoch=0, fingerprint={}))
        >>> store.read_manifest().query_id
        'q'
    """

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        compression: Compression = "lz4",
        fold_every: int = 64,
        lease_seconds: float = 60.0,
    ) -> None:
        super().__init__()
        self._options = dict(storage_options or {})
        self._folder = ObjectFolder(url, self._options)
        self._compression: Compression = compression
        self._fold_every = fold_every
        self._lease_seconds = lease_seconds

    def __reduce__(self) -> tuple[object, ...]:
        settings = (self._compression, self._fold_every, self._lease_seconds)
        return _reopen, (self._folder.url, self._options, *settings)

    def __repr__(self) -> str:
        return f"ObjectStore({self._folder.url!r})"  # options may hold secrets

    # --- frames ------------------------------------------------------------------------------

    def append(
        self, header: FrameHeader, parts: Mapping[str, Sequence[pa.RecordBatch]]
    ) -> FrameRef:
        """Write a frame; see :meth:`BackupStore.append`."""
        data = b"".join(encode_frame(header, parts, compression=self._compression))
        order = f"{header.epoch:012d}-{header.sequence}-{path_name(header.attempt)}"
        name = f"{slot_folder(header.operator, header.slot)}/{order}.frame"
        try:
            self._folder.create(name, data)
        except FileExistsError as error:
            raise frame_exists(name) from error
        return FrameRef(name, 0, len(data), digest_of(data))

    def read(self, ref: FrameRef) -> Frame:
        """Read a frame back; see :meth:`BackupStore.read`."""
        try:
            data = self._folder.read(checked_frame_name(ref.name))
        except FileNotFoundError as error:
            raise unreadable_frame(ref, "It is missing.") from error
        if (ref.offset, ref.length) != (0, len(data)):
            raise unreadable_frame(ref, f"The object holds {len(data)} bytes.")
        return decode_frame(checked_bytes(ref, data))

    def frames(
        self, operator: str | None = None, slot: Slot | None = None
    ) -> Iterator[tuple[FrameRef, FrameHeader | BackupUnreadableError]]:
        """Every frame in the store; see :meth:`BackupStore.frames`."""
        below = SLOTS if operator is None else f"{SLOTS}/{path_name(operator)}"
        sizes = {
            name: size
            for name, size in self._folder.sizes(below).items()
            if name.endswith(".frame") and (slot is None or name.split("/")[2] == str(slot))
        }
        names = list(sizes)
        for start in range(0, len(names), _TOGETHER):
            some = {name: sizes[name] for name in names[start : start + _TOGETHER]}
            yield from self._headers(some)

    def _headers(
        self, sizes: dict[str, int]
    ) -> Iterator[tuple[FrameRef, FrameHeader | BackupUnreadableError]]:
        starts = self._folder.read_starts(
            {name: min(size, _MOST_HEADS) for name, size in sizes.items() if size}
        )
        for name, size in sizes.items():
            ref = FrameRef(name, 0, size)
            data = starts.get(name, b"")
            if data is None:
                continue  # dropped meanwhile
            try:
                prefix = decode_prefix(data)
                if prefix.frame_bytes != size:
                    raise unreadable_frame(ref, f"It should hold {prefix.frame_bytes} bytes.")
                if prefix.padded_head_bytes > len(data):
                    data = self._folder.read_starts({name: prefix.padded_head_bytes})[name] or b""
                header = decode_header(data)
                yield msgspec.structs.replace(ref, digest=prefix.head_crc), header
            except BackupUnreadableError as error:
                yield ref, error

    def drop(self, refs: Iterable[FrameRef]) -> None:
        """Delete frames; see :meth:`BackupStore.drop`."""
        require_lock(self._lock, "drop frames")
        self._folder.delete([checked_frame_name(ref.name) for ref in refs])

    # --- commits, manifest, lock -------------------------------------------------------------

    def _open_commits(self) -> ObjectCommits:
        return ObjectCommits(self._folder, self._fold_every)

    def read_commits(self) -> CommitLog:
        """Read the commit log; see :meth:`BackupStore.read_commits`."""
        return read_log(self._folder)

    def read_manifest(self) -> Manifest | None:
        """The manifest; see :meth:`BackupStore.read_manifest`."""
        try:
            return decode_manifest(self._folder.read(MANIFEST))
        except FileNotFoundError:
            if self._folder.sizes(COMMITS) or self._folder.sizes(SLOTS):
                raise missing_manifest(self._folder.url) from None
            return None

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest; see :meth:`BackupStore.write_manifest`."""
        require_lock(self._lock, "write the manifest")
        self._folder.replace(MANIFEST, encode_manifest(manifest))

    def lock(self, owner: str) -> ObjectLock:
        """Become the only driver on this store; see :class:`ObjectLock` for the guarantees."""
        lock = ObjectLock(self._folder, owner, self._lease_seconds)
        self._owned_by(lock)
        return lock

    def bytes_used(self) -> int:
        """Bytes that the store's objects hold."""
        return sum(self._folder.sizes().values())


def _reopen(
    url: str,
    options: dict[str, Any],
    compression: Compression,
    fold_every: int,
    lease_seconds: float,
) -> ObjectStore:
    return ObjectStore(
        url,
        options,
        compression=compression,
        fold_every=fold_every,
        lease_seconds=lease_seconds,
    )
