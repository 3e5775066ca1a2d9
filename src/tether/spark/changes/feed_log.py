"""Which files of a change-feed directory count, and in which order.

One small file for each commit, numbered without a gap, written under another name and renamed: so it is
visible completely or not at all. Rows are in folders that a commit names; a folder without a commit was
left by a crash, and is not read.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import fsspec
import msgspec

from tether.backup.files import replace_durably, sync_folder
from tether.core.errors import BackupUnreadableError, BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LOG, SCHEMA = "_changes", "schema.json"
_ENTRY = re.compile(r"^(?P<version>\d{20})\.json$")


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One commit of a feed."""

    version: int
    epoch: int
    kind: Literal["stable", "tentative", "take-back"]
    """``take-back``: all commits of this epoch and later ones are void; the query went back to a
    snapshot, and gives them again."""
    folder: str = ""
    files: tuple[str, ...] = ()
    replaces: tuple[int, ...] = ()
    """Other epochs whose tentative rows these take the place of."""


class FeedLog:
    """The commits of a directory; one writer, any number of readers.

    Args:
        path: The directory, or a URL that fsspec can open.
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self.files, self.root = fsspec.core.url_to_fs(self.path)
        self._local = "file" in _protocols(self.files)
        self._known: dict[int, Commit] = {}
        self._lock = threading.Lock()

    # ---- reading -------------------------------------------------------------------------------

    def commits(self, *, after: int = -1, upto: int | None = None) -> list[Commit]:
        """Commits in their order.

        Raises:
            BackupUnreadableError: One is missing or cannot be read.
        """
        with self._lock:
            numbers = self._numbers()
            for number in numbers:
                if number not in self._known:
                    self._known[number] = self._read(number)
            known = dict(self._known)
        if numbers != list(range(len(numbers))):
            missing = sorted(set(range(numbers[-1])) - set(numbers))
            raise BackupUnreadableError(
                f"The changes in {self.path} are not whole.",
                why=f"Of {numbers[-1] + 1} commits, {missing[:5]} are missing.",
                do="Put the missing files back from a copy.",
            )
        last = numbers[-1] if upto is None and numbers else (-1 if upto is None else upto)
        return [known[number] for number in numbers if after < number <= last]

    @property
    def last(self) -> int:
        """Version of the newest commit; -1 where there is none."""
        numbers = self._numbers()
        return numbers[-1] if numbers else -1

    def schema(self) -> str | None:
        """The rows' schema as Spark's JSON, if any were written."""
        path = f"{self.root}/{LOG}/{SCHEMA}"
        if not self.files.exists(path):
            return None
        return str(self.files.cat_file(path).decode())

    def _numbers(self) -> list[int]:
        folder = f"{self.root}/{LOG}"
        if not self.files.exists(folder):
            return []
        self.files.invalidate_cache(folder)
        names = (str(path).rsplit("/", 1)[-1] for path in self.files.ls(folder, detail=False))
        found = (_ENTRY.match(name) for name in names)
        return sorted(int(match["version"]) for match in found if match is not None)

    def _read(self, number: int) -> Commit:
        try:
            data = self.files.cat_file(self._entry(number))
            return msgspec.json.decode(data, type=Commit)
        except (msgspec.MsgspecError, OSError) as error:
            raise BackupUnreadableError(
                f"Commit {number} of the changes in {self.path} cannot be read.",
                why=str(error),
                do="Put the file back from a copy.",
            ) from error

    def _entry(self, number: int) -> str:
        return f"{self.root}/{LOG}/{number:020d}.json"

    # ---- writing -------------------------------------------------------------------------------

    def append(
        self,
        epoch: int,
        kind: Literal["stable", "tentative", "take-back"],
        folder: str = "",
        files: Sequence[str] = (),
        replaces: tuple[int, ...] = (),
    ) -> Commit:
        """Make a commit durable; from now on readers see it."""
        if folder:
            self._sync(folder, files)
        commit = Commit(
            version=self.last + 1,
            epoch=epoch,
            kind=kind,
            folder=folder,
            files=tuple(files),
            replaces=replaces,
        )
        self._put(self._entry(commit.version), msgspec.json.encode(commit))
        return commit

    def set_schema(self, schema: str) -> None:
        """Note the rows' schema, or check that it is the one that was noted.

        Raises:
            BadValueError: The directory holds rows of another one.
        """
        known = self.schema()
        if known is None:
            self.files.makedirs(f"{self.root}/{LOG}", exist_ok=True)
            self._put(f"{self.root}/{LOG}/{SCHEMA}", schema.encode())
        elif known != schema:
            raise BadValueError(
                f"The changes in {self.path} have other columns than this output.",
                why=f"They are {known}, and these {schema}.",
                do="Write to a new directory.",
            )

    def _put(self, path: str, data: bytes) -> None:
        if self._local:
            replace_durably(Path(path), data)
        else:  # object stores put a whole object or none
            self.files.pipe_file(path, data)

    def _sync(self, folder: str, files: Iterable[str]) -> None:
        """Make rows durable before a commit names them; object stores do that themselves."""
        if not self._local:
            return
        place = Path(self.root) / folder
        for name in files:
            descriptor = os.open(place / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(place)
        sync_folder(place.parent)


def live(commits: Iterable[Commit]) -> list[Commit]:
    """Commits that no later one has taken back, in order.

    Example:
        >>> rows = [Commit(version=n, epoch=n, kind="stable", folder=str(n)) for n in range(3)]
        >>> [one.epoch for one in live([*rows, Commit(version=3, epoch=1, kind="take-back")])]
        [0]
    """
    kept: list[Commit] = []
    for commit in commits:
        if commit.kind == "take-back":
            kept = [one for one in kept if one.epoch < commit.epoch]
        else:
            kept.append(commit)
    return kept


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
