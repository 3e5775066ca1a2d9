"""Names in a store: safe as path components, and never outside the store."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import PurePosixPath
from urllib.parse import quote

from tether.core.errors import BackupUnreadableError
from tether.core.ids import Slot

SLOTS = "slots"
MANIFEST = "manifest.json"

_LONGEST = 100  # bytes; a name holds two of them and file systems allow 255


def path_name(text: str) -> str:
    """Turn any text into one path component; different texts stay different.

    Example:
        >>> path_name("word count/α"), path_name(".."), path_name("")
        ('word%20count%2F%CE%B1', '%2E%2E', '%')
    """
    name = quote(text, safe="", errors="surrogatepass").replace(".", "%2E") or "%"
    if len(name) <= _LONGEST:
        return name
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()
    return f"{name[: _LONGEST - 26]}%~{digest}"


def slot_folder(operator: str, slot: Slot) -> str:
    """Folder of a slot's frames, relative to the store's root.

    Example:
        >>> slot_folder("count", 3)
        'slots/count/3'
    """
    return f"{SLOTS}/{path_name(operator)}/{slot}"


def slot_key(operator: str, slot: Slot) -> str:
    """Key of a slot in a commit record.

    Example:
        >>> slot_key("count", 3)
        'count/3'
    """
    return f"{operator}/{slot}"


def split_slot_key(key: str) -> tuple[str, Slot]:
    """Operator and slot of a commit record's key.

    Raises:
        ValueError: the key does not end in a slot number.

    Example:
        >>> split_slot_key("a/b/3")
        ('a/b', 3)
    """
    operator, _, slot = key.rpartition("/")
    return operator, Slot(int(slot))


def epoch_of_name(name: str) -> int | None:
    """The epoch in the name of a log or frame: known even if the content is unreadable.

    Example:
        >>> epoch_of_name("slots/count/0/000000000007.000001.ab.cd.log")
        7
    """
    digits = PurePosixPath(name).name[:12]
    return int(digits) if len(digits) == 12 and digits.isdecimal() else None


def checked_frame_name(name: str) -> str:
    """Refuse a reference that points outside the slots' folders.

    References come from the commit log, which is not trusted.

    Raises:
        BackupUnreadableError: the name is not one that a store gives to a frame.
    """
    parts = PurePosixPath(name).parts
    plain = len(parts) == 4 and "/".join(parts) == name and "\0" not in name
    if not plain or parts[0] != SLOTS or ".." in parts:
        raise BackupUnreadableError(
            "A backup frame cannot be read.",
            why=f"The commit log names {name!r}, which is no place for a frame.",
            do="Restore the backup directory from a copy.",
        )
    return name
