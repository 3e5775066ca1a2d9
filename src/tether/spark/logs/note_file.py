"""A small file of ours in Spark's checkpoint directory: there whole or not at all, and durable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import fsspec
import msgspec

from tether.backup.files import replace_durably, sync_folder
from tether.core.errors import BackupUnreadableError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T", bound=msgspec.Struct)


class NoteFile(Generic[T]):
    """One note.

    Args:
        checkpoint: Spark's checkpoint directory.
        name: Of the file.
        kind: What it holds.
    """

    def __init__(self, checkpoint: str, name: str, kind: type[T]) -> None:
        self._kind = kind
        files, root = fsspec.core.url_to_fs(checkpoint)
        self._files: AbstractFileSystem = files
        self._folder, self._path = f"{root}/tether", f"{root}/tether/{name}"
        protocol = files.protocol
        self._local = "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def read(self) -> T | None:
        """The note; None where there is none.

        Raises:
            BackupUnreadableError: There is something else.
        """
        try:
            data = self._files.cat_file(self._path)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=self._kind)
        except msgspec.MsgspecError as error:
            raise BackupUnreadableError(
                f"The note {self._path} cannot be read.",
                why=str(error),
                do="Put the checkpoint directory back from a copy.",
            ) from error

    def write(self, note: T) -> None:
        """Put this note in place of any other."""
        self._files.makedirs(self._folder, exist_ok=True)
        data = msgspec.json.encode(note)
        if self._local:
            replace_durably(Path(self._path), data)
        else:  # object stores put a whole object or none
            self._files.pipe_file(self._path, data)

    def remove(self) -> None:
        """Remove it, if it is there."""
        if self._files.exists(self._path):
            self._files.rm_file(self._path)
            if self._local:
                sync_folder(Path(self._folder))
