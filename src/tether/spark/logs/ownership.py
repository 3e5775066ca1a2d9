"""Whose checkpoint it is: that of a plain Spark query is refused before anything starts.

A plain query's checkpoint says how far the source was read, and nothing of Tether's state: a query that
went on from there would lack all rows before, and Spark would say so late, or not at all.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from tether.core.errors import QueryRefusedError
from tether.sql.checkpoint import open_checkpoint

_MARK = "tether/query"
_log = logging.getLogger(__name__)


def claim_checkpoint(checkpoint: str, *, known: bool) -> None:
    """Mark a new checkpoint as a Tether query's; refuse one that is another query's.

    A checkpoint that cannot be reached from Python is left to Spark.

    Args:
        checkpoint: As Spark is given it.
        known: Whether something else shows that it belongs to a Tether query, such as a backup of the
            same query: checkpoints from before this mark have none.

    Raises:
        QueryRefusedError: Spark has run another query with it.
    """
    opened = _opened(checkpoint)
    if opened is None:
        return
    files, root, used, ours = opened
    if ours:
        return
    if used and not known:
        raise QueryRefusedError(
            f"The checkpoint {checkpoint} is not that of a Tether query.",
            why="Spark has run a query with it that Tether did not start, so nothing there says what "
            "the state was at that place of the source.",
            do="Give this query an empty checkpoint directory of its own. To keep a plain query's "
            "code and checkpoint, use tether.sql.bounded.",
        )
    with contextlib.suppress(Exception):
        files.makedirs(f"{root}/tether", exist_ok=True)
        files.pipe_file(f"{root}/{_MARK}", b"This is the checkpoint of a Tether query.\n")


def _opened(checkpoint: str) -> tuple[Any, str, bool, bool] | None:
    """The file system, the folder in it, whether Spark has used it, and whether Tether has."""
    try:
        files, root = open_checkpoint(checkpoint)
        used = files.exists(f"{root}/offsets") and bool(files.ls(f"{root}/offsets"))
        return files, root, used, files.exists(f"{root}/tether")
    except Exception as error:  # whatever a driver of a file system raises: Spark may reach it
        _log.info("the checkpoint %s cannot be looked at from Python: %s", checkpoint, error)
        return None
