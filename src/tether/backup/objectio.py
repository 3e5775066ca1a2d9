"""The operations that a backup needs from an object store, on top of fsspec.

Object stores have no append and no rename, and differ in how they refuse to overwrite. This module hides
the differences; every failure becomes a ``BackupError`` that says what to check.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.asyn import AsyncFileSystem

from tether.core.errors import BackupError, BadValueError, TetherError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class ObjectFolder:
    """Objects below one URL, addressed by names relative to it.

    Args:
        url: For instance ``s3://bucket/prefix``.
        options: What fsspec's file system for that protocol takes: credentials, endpoint, ...
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.url = url.rstrip("/")
        try:
            self._fs, base = fsspec.core.url_to_fs(self.url, **options)
        except ImportError as error:
            raise BackupError(
                f"Backups cannot be kept in {self.url}.",
                why=f"A package is missing: {error}.",
                do="Install it on the driver and on all executors.",
            ) from error
        except (ValueError, TypeError) as error:
            raise BadValueError(
                f"{self.url!r} is not a place that backups can be kept in.",
                why=f"{error}.",
                do="Use a path, or a URL such as s3://bucket/prefix.",
            ) from error
        self._base = base.rstrip("/")
        protocols = (
            (self._fs.protocol,) if isinstance(self._fs.protocol, str) else self._fs.protocol
        )
        self.conditional = "s3" in protocols
        """Whether ``replace`` can fail if the object has been changed meanwhile."""

    def read(self, name: str) -> bytes:
        """All bytes of an object.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._explained(f"{name} could not be read"):
            return bytes(self._fs.cat_file(self._path(name)))

    def read_many(self, names: list[str]) -> dict[str, bytes | None]:
        """All bytes of several objects, fetched together; ``None`` for one that is not there."""
        with self._explained("Objects could not be read"):
            found = self._fs.cat([self._path(n) for n in names], on_error="return") if names else {}
        return {name: self._result(name, found[self._path(name)]) for name in names}

    def read_starts(self, sizes: Mapping[str, int]) -> dict[str, bytes | None]:
        """The first bytes of several objects, with a number of bytes for each."""
        paths = [self._path(name) for name in sizes]
        with self._explained("Objects could not be read"):
            found = self._fs.cat_ranges(paths, 0, list(sizes.values()), on_error="return")
        return {name: self._result(name, data) for name, data in zip(sizes, found, strict=True)}

    def _result(self, name: str, found: object) -> bytes | None:
        if isinstance(found, FileNotFoundError):
            return None
        if isinstance(found, BaseException):
            with self._explained(f"{name} could not be read"):
                raise found
        assert isinstance(found, bytes)
        return found

    def create(self, name: str, data: bytes) -> None:
        """Write a new object, all or nothing; atomic where the store supports it.

        S3 and Google's store can (a conditional put). Elsewhere two creators within the same
        instant may both succeed, and the later one's bytes stay.

        Raises:
            FileExistsError: there is one with other content.
        """
        try:
            with self._explained(f"{name} could not be written", passing=FileExistsError):
                self._put_new(self._path(name), data)
        except (FileExistsError, BackupError) as error:
            # Stores report "exists" differently, and a put that was sent twice finds its own object.
            try:
                there = self.read(name)
            except (FileNotFoundError, BackupError):
                raise error from None
            if there != data:
                raise FileExistsError(errno.EEXIST, "exists already", name) from error

    def _put_new(self, path: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(path, data, mode="create")
            return
        except (TypeError, NotImplementedError):
            pass  # a file system without that mode
        except OSError as error:
            if error.errno != errno.ENOSYS:  # an S3 look-alike without conditional puts
                raise
        if self._fs.exists(path):
            raise FileExistsError(path)
        self._fs.pipe_file(path, data)

    def replace(self, name: str, data: bytes, *, version: str | None = None) -> None:
        """Write an object, all or nothing, replacing any other.

        Args:
            name: The object.
            data: Its new content.
            version: The result of :meth:`version`: fail if the object has changed since. Ignored where
                the store is not ``conditional``.
        """
        condition = {"IfMatch": version} if version and self.conditional else {}
        with self._explained(f"{name} could not be written", passing=FileExistsError):
            self._fs.pipe_file(self._path(name), data, **condition)

    def version(self, name: str) -> str | None:
        """A text that changes with the content; ``None`` if the store is not conditional."""
        if not self.conditional:
            return None
        with self._explained(f"{name} could not be read"):
            return str(self._fs.info(self._path(name), refresh=True)["ETag"])

    def sizes(self, below: str = "") -> dict[str, int]:
        """Names and sizes of all objects below a folder, in order of name; empty if none."""
        self._fs.invalidate_cache()
        try:
            with self._explained(f"{below or 'The store'} could not be listed"):
                found = self._fs.find(self._path(below), detail=True)
        except FileNotFoundError:
            return {}
        start = len(self._base) + 1
        return {path[start:]: int(info["size"] or 0) for path, info in sorted(found.items())}

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        paths = [self._path(name) for name in names]
        if not paths:
            return
        with self._explained("Old objects could not be deleted"):
            if isinstance(self._fs, AsyncFileSystem):
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm(paths)
                    return
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(path)

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if name else self._base

    @contextlib.contextmanager
    def _explained(self, what: str, passing: type[OSError] = FileNotFoundError) -> Iterator[None]:
        try:
            yield
        except (passing, TetherError):
            raise
        # Drivers pass on exceptions of their network libraries, which may not be OSErrors.
        except Exception as error:
            raise BackupError(
                f"{what} in the backup store {self.url}.",
                why=f"{type(error).__name__}: {error}.",
                do="Check the address, the credentials, their rights and the network.",
            ) from error
