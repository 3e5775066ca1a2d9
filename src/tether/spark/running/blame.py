"""Finds the original error in the text that Spark makes of a failure.

An exception of a task or of ``foreachBatch`` crosses two processes as text. Tether's errors are written
so that they can be found in that text.
"""

from __future__ import annotations

import re

from tether.core import errors
from tether.core.errors import TetherError
from tether.spark.running.causes import cause_of
from tether.spark.running.workers import worker_python

_CLASSES = {
    cls.__name__: cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, TetherError)
}
_OURS = re.compile(r"tether\.[\w.]+\.(?P<name>\w+Error): (?P<text>[^\n]*)")
_PARTS = re.compile(
    r"^(?P<what>.*?)(?: Why: (?P<why>.*?))?(?: What to do: (?P<do>.*))?$", re.DOTALL
)

_MOST_CHARACTERS = 1_000
"""Longest error text for Spark: a few lines, where a stack trace has hundreds."""


def tether_error(error: BaseException) -> TetherError:
    """The error of ours that caused ``error``, or one that wraps it.

    Example:
        >>> text = "… tether.core.errors.OperatorError: It broke. Why: rows. What to do: mend."
        >>> found = tether_error(RuntimeError(text))
        >>> type(found).__name__, found.what, found.do
        ('OperatorError', 'It broke.', 'mend.')
    """
    if isinstance(error, TetherError):
        return error
    for match in reversed(list(_OURS.finditer(str(error)))):
        if match["name"] in _CLASSES:
            parts = _PARTS.match(match["text"])
            assert parts is not None  # the pattern matches any text
            cls = _CLASSES[match["name"]]
            return cls(parts["what"], why=parts["why"] or "", do=parts["do"] or "")
    cause = cause_of(str(error) or type(error).__name__, worker_python=worker_python())
    return TetherError(
        f"The query failed: {cause.text}",
        why="Spark, the source or the sink raised it; this error's __cause__ has the whole text.",
        do=cause.do,
    )


def told_to_spark(error: Exception, *, stopping: bool) -> Exception:
    """The error text for Spark of an interrupted epoch; it must be short.

    Spark searches the text for an interruption, by a pattern that recurses at every character. Over
    a text as long as a stack trace the JVM's own stack overflows, and the query's thread dies of that.

    Args:
        error: What broke the epoch off; the caller keeps it for the user.
        stopping: Whether the query is being stopped: the text is then one that Spark takes for the
            interruption that it is, and not for a failure.

    Example:
        >>> error = RuntimeError("An error occurred while calling o1.save" + " at org.apache" * 9_000)
        >>> len(str(told_to_spark(error, stopping=False))) < 1_200
        True
    """
    if stopping:
        return InterruptedError(
            "py4j.protocol.Py4JJavaError: An error occurred while calling an epoch, "
            "which was stopped: java.lang.InterruptedException"
        )
    ours = tether_error(error)
    whole = len(str(ours)) < _MOST_CHARACTERS
    return ours if whole else type(ours)(ours.what[:_MOST_CHARACTERS], do="See the driver's log.")
