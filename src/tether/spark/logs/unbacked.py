"""A note in Spark's checkpoint that epochs were run without backups: no earlier backup knows of them.

The backup of a query that goes on without one stays where it is, and looks as if the query had ended
there. Were the query given it again later, a lost slot would be restored from it, and only what had
been at risk when it was written would be told: not all the epochs since.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import fsspec

from tether.core.errors import QueryRefusedError
from tether.core.ids import Epoch

_NOTE = "tether/unbacked-since"
_log = logging.getLogger(__name__)


def note_unbacked(checkpoint: str, epoch: Epoch) -> None:
    """Say durably that epochs from this one on are in no backup."""
    opened = _open(checkpoint)
    if opened is None:
        _log.warning(
            "%s cannot be written to through fsspec: nothing there will say that epochs from %d on "
            "were run without backups. Do not go back to a backup from before.",
            checkpoint,
            epoch,
        )
    elif _since(*opened) is None:
        files, root = opened
        files.makedirs(f"{root}/tether", exist_ok=True)
        files.pipe_file(f"{root}/{_NOTE}.writing", str(epoch).encode())
        files.mv(f"{root}/{_NOTE}.writing", f"{root}/{_NOTE}")


def refuse_unbacked(checkpoint: str) -> None:
    """Do not go on with a backup that lacks epochs.

    Raises:
        QueryRefusedError: It lacks some.
    """
    opened = _open(checkpoint)
    since = None if opened is None else _since(*opened)
    if since is not None:
        raise QueryRefusedError(
            f"Epochs from {since} on were run without backups.",
            why="Their state is in no backup, so after a loss no bound could be given.",
            do="Go on without backups, or start with an empty backup directory and Spark checkpoint.",
        )


def _open(checkpoint: str) -> tuple[Any, str] | None:
    with contextlib.suppress(ImportError, ValueError):
        files, root = fsspec.core.url_to_fs(checkpoint)
        return files, root
    return None


def _since(files: Any, root: str) -> int | None:
    try:
        return int(files.cat_file(f"{root}/{_NOTE}"))
    except FileNotFoundError:
        return None
