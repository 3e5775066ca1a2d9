"""How a query ends: because the user has asked for it, or because something has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Outcome:
    """Whether a query is to end, and why. Every thread of the query may read it.

    Example:
        >>> outcome = Outcome()
        >>> outcome.when_failed(lambda: print("Spark is stopped"))
        >>> outcome.fail(RuntimeError("A twin cannot be started."))
        Spark is stopped
        >>> outcome.failure
        RuntimeError('A twin cannot be started.')
    """

    def __init__(self) -> None:
        self._failure: BaseException | None = None
        self._on_failure: Callable[[], None] = lambda: None
        self._stopping = False

    @property
    def failure(self) -> BaseException | None:
        """Why the query has failed, if it has."""
        return self._failure

    @property
    def stopping(self) -> bool:
        """Whether the user has asked for the end: an epoch that breaks off now has not failed."""
        return self._stopping

    @property
    def ending(self) -> bool:
        """Whether no further epoch will run."""
        return self._stopping or self._failure is not None

    def begin_stop(self) -> None:
        """The user has asked for the end."""
        self._stopping = True

    def when_failed(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` when something other than an epoch has failed for good."""
        self._on_failure = stop

    def failed(self, error: BaseException) -> None:
        """An epoch has failed, or the restart of Spark's stream: Spark has stopped already."""
        self._failure = error

    def fail(self, error: BaseException) -> None:
        """Something else has failed: Spark must be stopped."""
        self._failure = error
        self._on_failure()
