"""The few verbs that an exchange needs of the place where it is kept."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from typing import TYPE_CHECKING, Any, Protocol

from tether.backup.files import (
    check_no_links,
    check_private,
    create_durably,
    explained,
    make_folder,
    read_whole,
    sync_folder,
)
from tether.backup.objectio import ObjectFolder
from tether.backup.places import local_path
from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class Folder(Protocol):
    """Files below one place, addressed by names relative to it.

    Every failure of the storage leaves as a ``BackupError`` that says what to check.
    """

    url: str

    def create(self, name: str, data: bytes) -> None:
        """Write a new file, all or nothing, durable on return.

        Raises:
            FileExistsError: there is one with other content.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, all or nothing, over whatever is there."""

    def read(self, name: str) -> bytes:
        """All bytes of a file.

        Raises:
            FileNotFoundError: there is none.
        """

    def sizes(self, below: str = "") -> dict[str, int]:
        """Names and sizes of all files below a folder, in order of name; empty if none."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone are passed over."""


class LocalFolder:
    """A directory, folders 0700 and files 0600, as for backups."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.url = str(self._root)

    def create(self, name: str, data: bytes) -> None:
        """See :meth:`Folder.create`. A file appears under its name only when all of it is on disk."""
        path = self._root / name
        with explained(f"{name} could not be written to the exchange.", path):
            scratch = self._scratch(path, data)
            try:
                os.link(scratch, path)
                other = False
            except FileExistsError:
                other = read_whole(path) != data
            finally:
                scratch.unlink()
            sync_folder(path.parent)
        if other:
            raise FileExistsError(errno.EEXIST, "exists already", name)

    def replace(self, name: str, data: bytes) -> None:
        """See :meth:`Folder.replace`."""
        path = self._root / name
        with explained(f"{name} could not be written to the exchange.", path):
            self._scratch(path, data).replace(path)
            sync_folder(path.parent)

    def _scratch(self, path: Path, data: bytes) -> Path:
        new = not self._root.exists()
        make_folder(path.parent)
        if not new:
            check_private(self._root)
            check_no_links(self._root, str(path.parent.relative_to(self._root)))
        # Under a name of its own: several tasks and a writer that was killed may meet here.
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        create_durably(scratch, [data])
        return scratch

    def read(self, name: str) -> bytes:
        """See :meth:`Folder.read`."""
        path = self._root / name
        try:
            return read_whole(path)
        except FileNotFoundError:
            raise
        except OSError:
            with explained(f"{name} of the exchange could not be read.", path):
                raise

    def sizes(self, below: str = "") -> dict[str, int]:
        """See :meth:`Folder.sizes`; files that are being written are not among them."""
        top = self._root / below
        found = {}
        for folder, _, names in os.walk(top):
            for name in names:
                if not name.startswith("."):
                    path = os.path.join(folder, name)  # noqa: PTH118 - walk speaks strings
                    with contextlib.suppress(FileNotFoundError):
                        found[os.path.relpath(path, self._root)] = os.stat(path).st_size  # noqa: PTH116
        return dict(sorted(found.items()))

    def delete(self, names: Iterable[str]) -> None:
        """See :meth:`Folder.delete`."""
        for name in names:
            with explained(f"{name} of the exchange could not be deleted.", self._root / name):
                (self._root / name).unlink(missing_ok=True)


def open_folder(url: str, options: Mapping[str, Any] | None = None) -> Folder:
    """The place at a path or URL; nothing is created yet.

    Args:
        url: A path or ``file:`` URL for a directory, else what fsspec knows.
        options: For fsspec's file system; a directory takes none.

    Example:
        >>> open_folder("file:///tmp/clicks").url
        '/tmp/clicks'
    """
    if not url or "\0" in url:
        raise BadValueError(
            f"{url!r} is not a place for an exchange.",
            do="Use a path, or a URL such as s3://bucket/prefix.",
        )
    path = local_path(url)
    if path is None:
        return ObjectFolder(url, options or {})
    if options:
        raise BadValueError(
            f"A local exchange takes no storage options, but {url!r} was given some.",
            do="Leave them out, or use the URL of an object store.",
        )
    return LocalFolder(path)
