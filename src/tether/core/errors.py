"""Every error that Tether raises on purpose: what happened, why, and what to do."""

from __future__ import annotations


class TetherError(Exception):
    """Base of all errors raised on purpose.

    Args:
        what: What happened, one sentence.
        why: The cause, as far as it is known.
        do: What the reader can do about it.

    Example:
        >>> str(TetherError("No backup was found.", why="The folder is empty.", do="Check the path."))
        'No backup was found. Why: The folder is empty. What to do: Check the path.'
    """

    code = "tether"

    def __init__(self, what: str, *, why: str = "", do: str = "") -> None:
        self.what, self.why, self.do = what, why, do
        parts = [what, f"Why: {why}" if why else "", f"What to do: {do}" if do else ""]
        super().__init__(" ".join(part for part in parts if part))

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with the joined text and lose why and do.
        return _rebuild, (type(self), self.what, self.why, self.do)


def told(error: TetherError) -> str:
    """An error as text, from which it is found again where Spark passes on the text alone.

    Example:
        >>> told(TetherError("No.", do="Ask again."))
        'tether.core.errors.TetherError: No. What to do: Ask again.'
    """
    return f"{type(error).__module__}.{type(error).__name__}: {error}"


def _rebuild(cls: type[TetherError], what: str, why: str, do: str) -> TetherError:
    return cls(what, why=why, do=do)


class BadValueError(TetherError, ValueError):
    """A parameter of the user's is not usable."""

    code = "bad-value"


class ArenaError(TetherError):
    """Resident state cannot be held: no room, or the arena is not ours."""

    code = "arena"


class BackupError(TetherError):
    """The backup store failed or holds something unusable."""

    code = "backup"


class BackupUnreadableError(BackupError):
    """A frame, commit record or manifest cannot be read back: torn, corrupt or missing."""

    code = "backup-unreadable"


class BackupLockedError(BackupError):
    """Another query holds this backup directory."""

    code = "backup-locked"


class ChangedProgramError(BackupError):
    """The backup was written by another program, state schema, slot count or policy."""

    code = "changed-program"


class OperatorError(TetherError):
    """A user's operator raised; its slot's state was rolled back to the epoch before."""

    code = "operator"


class OutputSchemaError(OperatorError):
    """An operator emitted rows that do not fit its declared output schema."""

    code = "output-schema"


class QueryRefusedError(TetherError):
    """The query cannot be started safely as configured."""

    code = "query-refused"


class StaleOutputError(TetherError):
    """Rows were asked for that the state no longer holds: it has moved on to a later epoch."""

    code = "stale-output"
