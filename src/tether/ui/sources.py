"""What a page shows: the feeds of this process, or the one beside a backup directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from tether.backup.places import local_path
from tether.observe import running
from tether.observe.reading import FeedReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tether.observe.feed import Feed

Presence = Literal["running", "quiet", "stopped", "failed", "gone"]
"""``quiet``: it may be idle or dead, nobody can tell from here. ``gone``: it ended without a word."""
QUIET_SECONDS = 15.0


class Source(Protocol):
    """A source of feeds."""

    def feeds(self) -> Sequence[Feed]:
        """All that there are, the one to show first first."""
        ...

    def presence(self, feed: Feed) -> Presence:
        """Whether the query still runs."""
        ...


class ThisProcess:
    """The queries that this driver runs, and those that it ran last."""

    def feeds(self) -> Sequence[Feed]:
        """All of them, the newest first."""
        return running.feeds()

    def presence(self, feed: Feed) -> Presence:
        """The driver itself answers here, so a query that has not ended runs."""
        return (feed.ended.how or "stopped") if feed.ended is not None else "running"


class Directory:
    """The query whose backups are in a directory, whether it runs elsewhere, has finished or has died.

    Args:
        url: The directory, or a URL.
        options: Of the store's file system.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.reader = FeedReader(url, options)
        self._path = local_path(url)
        self.reader.look()

    def feeds(self) -> Sequence[Feed]:
        """The one there is; none where no query has told anything yet."""
        return [self.reader.feed] if self.reader.feed.query is not None else []

    def presence(self, feed: Feed) -> Presence:
        """Whether the query runs: by its last report, and by the lock of the directory."""
        if feed.ended is not None:
            return feed.ended.how or "stopped"
        held = None if self._path is None else is_held(self._path / "lock")
        if held:
            return "running"
        silent = time.time() - feed.heard_at > QUIET_SECONDS
        if held is None:
            return "quiet" if silent else "running"
        return "gone"


def is_held(lock: Path) -> bool | None:
    """Whether a process of this machine holds a lock file; None where that cannot be seen.

    It is read from the kernel's list: to try the lock would keep out a query that begins just then.
    """
    try:
        found = lock.stat()
        device = f"{found.st_dev >> 8 & 0xFFF:02x}:{found.st_dev & 0xFF:02x}:{found.st_ino}"
        listed = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return None
    return any(
        len(words) > 5 and words[5] == device for words in map(str.split, listed.splitlines())
    )
