"""Adds to an exception of the user's code where it happened."""

from __future__ import annotations

from tether.core.errors import OperatorError, TetherError
from tether.engine.slot.misplaced import MisplacedRowsError


def blamed(where: str, error: Exception) -> Exception:
    """Add operator, slot and epoch to an exception of the user's code.

    Args:
        where: Operator, slot and epoch.
        error: What was raised.

    Example:
        >>> blamed("Operator 'sum', slot 0, epoch 3", ZeroDivisionError("by zero")).what
        "Operator 'sum', slot 0, epoch 3 raised ZeroDivisionError: by zero"
    """
    if isinstance(error, MisplacedRowsError):
        return error
    if isinstance(error, OperatorError):
        return type(error)(f"{where}: {error.what}", why=error.why, do=error.do)
    if isinstance(error, TetherError):
        return OperatorError(f"{where}: {error.what}", why=error.why, do=error.do)
    return OperatorError(
        f"{where} raised {type(error).__name__}: {error}",
        why="The operator's own code failed on this epoch's rows.",
        do="The state was rolled back to the epoch before. Mend the operator and start the query "
        "again: it goes on with this epoch.",
    )
