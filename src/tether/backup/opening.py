"""Opens a store from its address, on the driver and in every executor."""

from typing import TYPE_CHECKING, Any

import msgspec

from tether.backup.framecodec import Compression
from tether.backup.local import LocalStore
from tether.backup.objects import ObjectStore
from tether.backup.places import local_path
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.backup.protocol import BackupStore


def open_store(
    url: str,
    *,
    storage_options: "Mapping[str, Any] | None" = None,
    compression: Compression | None = None,
) -> "BackupStore":
    """Open the backup store at a path or URL; nothing is created yet.

    Args:
        url: A path or ``file:`` URL for a directory, else what fsspec knows: ``s3://``, ``hdfs://``,
            ``gs://``, ``abfs://``, ``memory://``.
        storage_options: For fsspec's file system; a directory takes none.
        compression: Of the state in new frames; the store's own choice unless given.

    Raises:
        BackupError: the path is a file, or the package for that protocol is not installed.
        BadValueError: the URL is of an unknown kind.

    Example:
        >>> open_store("memory://doctest-open")
        ObjectStore('memory://doctest-open')
        >>> open_store("file:///tmp/backups")
        LocalStore('/tmp/backups')
    """
    if not url or "\0" in url:
        raise BadValueError(
            f"{url!r} is not a place that backups can be kept in.",
            do="Use a path, or a URL such as s3://bucket/prefix.",
        )
    path = local_path(url)
    if path is None:
        if compression is None:
            return ObjectStore(url, storage_options)
        return ObjectStore(url, storage_options, compression=compression)
    if storage_options:
        raise BadValueError(
            f"A local backup directory takes no storage options, but {url!r} was given some.",
            do="Leave them out, or use the URL of an object store.",
        )
    return LocalStore(path) if compression is None else LocalStore(path, compression=compression)


class StoreAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a store; small, and can be sent to executors.

    Example:
        >>> import pickle
        >>> StoreAddress(url="s3://bucket/backups", storage_options={"secret": "not shown"})
        StoreAddress(url='s3://bucket/backups')
        >>> pickle.loads(pickle.dumps(StoreAddress(url="memory://doctest-address"))).open()
        ObjectStore('memory://doctest-address')
    """

    url: str
    storage_options: dict[str, Any] = {}
    compression: Compression | None = None

    def open(self) -> "BackupStore":
        """Open the store here."""
        return open_store(
            self.url, storage_options=self.storage_options, compression=self.compression
        )

    def __repr__(self) -> str:
        return f"StoreAddress(url={self.url!r})"  # options may hold secrets
