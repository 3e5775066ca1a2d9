"""Trying again while an object store cannot be reached: a network that is cut comes back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from tether.backup.objectio import ObjectFolder
from tether.core.errors import BackupError, BackupLockedError, BackupUnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable

    _T = TypeVar("_T")

SECONDS = 60.0
"""How long."""
PAUSE = 0.2
"""Seconds between two attempts."""


def patiently(folder: object, what: Callable[[], _T], seconds: float = SECONDS) -> _T:
    """Do something in a place; where that is an object store, until it can be reached again.

    Args:
        folder: The place. What fails in a directory fails at once.
        what: It must come to the same when it is done twice, as the first attempt may have succeeded
            without an answer.
        seconds: For how long.

    Raises:
        BackupError: the place cannot be reached for so long, or what is there cannot be used.

    Example:
        >>> patiently(None, lambda: 7)
        7
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return what()
        except (BackupUnreadableError, BackupLockedError):
            raise
        except BackupError:
            if not isinstance(folder, ObjectFolder) or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE)
