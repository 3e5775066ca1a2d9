"""Whether an address is a directory of this machine's file system."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FILE_URL = re.compile(r"file:/", re.IGNORECASE)
_OTHER_URL = re.compile(r"[a-z][a-z0-9+.-]*(::|://)", re.IGNORECASE)


def local_path(url: str) -> Path | None:
    """The path that a path or ``file:`` URL names; ``None`` for a URL of another kind.

    Example:
        >>> local_path("file:///tmp/a%20b"), local_path("s3://bucket/a")
        (PosixPath('/tmp/a b'), None)
    """
    if _FILE_URL.match(url):
        return Path(unquote(urlsplit(url).path))
    return None if _OTHER_URL.match(url) else Path(url)
