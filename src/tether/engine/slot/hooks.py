"""The order in which an operator's hooks are called in an epoch. Every host calls them here.

1. ``on_feedback``, with the items that were sent to the operator since its last epoch;
2. ``process``, batch by batch;
3. ``on_epoch_end``;
4. ``on_window_end``, for each window that ends with the epoch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    import pyarrow as pa

    from tether.operator import EndedWindow, Operator
    from tether.output import Output

T = TypeVar("T")


class Applied(NamedTuple):
    """The input that an epoch's hooks have processed."""

    rows: int
    """Rows that came in."""
    ended: Sequence[EndedWindow]


class Watch:
    """Gets told the progress of the hooks; this base class ignores it."""

    def blaming(self) -> AbstractContextManager[Any]:
        """Around each call of the user's code."""
        return nullcontext()

    def arrived(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch has arrived; returns it as the operator gets it."""
        return batch

    def spent(self, on: Literal["process", "wait"]) -> None:
        """The time since the last call was spent in the user's code, or waiting for input."""

    def processed(self) -> None:
        """A batch has been processed; its output has not been passed on yet."""


@dataclass(frozen=True)
class EpochInput:
    """What an operator is given in one epoch.

    Args:
        rows: Its rows, in batches.
        feedback: Items that were sent to it.
        ended: Gives the windows that end with the epoch, from the number of its rows.
    """

    rows: Iterable[pa.RecordBatch]
    feedback: Iterable[pa.RecordBatch] = ()
    ended: Callable[[int], Sequence[EndedWindow]] = lambda rows: ()  # noqa: ARG005


def call_hooks(
    operator: Operator, given: EpochInput, out: Output, watch: Watch | None = None
) -> Generator[pa.RecordBatch, None, Applied]:
    """Call an operator's hooks for one epoch; yield its output as it emits it.

    Feedback that it sends stays in ``out``.

    Args:
        operator: Bound to its state, in which the epoch has begun.
        given: What it gets.
        out: Collects its output.
        watch: Gets told the progress.
    """
    watch, rows = watch or Watch(), 0
    for items in given.feedback:
        with watch.blaming():
            operator.on_feedback(items, out)
    watch.spent("process")
    for batch in given.rows:
        rows += batch.num_rows
        watch.spent("wait")
        seen = watch.arrived(batch)
        with watch.blaming():
            operator.process(seen, out)
        watch.spent("process")
        watch.processed()
        yield from out.drain()
    watch.spent("wait")
    with watch.blaming():
        operator.on_epoch_end(out)
        ended = given.ended(rows)
        for window in ended:
            operator.on_window_end(window, out)
    watch.spent("process")
    yield from out.drain()
    watch.spent("wait")
    return Applied(rows, ended)


def to_the_end(calls: Generator[Any, None, T]) -> T:
    """Call all hooks, and drop what the operator emits.

    Example:
        >>> def calls():
        ...     yield "output"
        ...     return "result"
        >>> to_the_end(calls())
        'result'
    """
    while True:
        try:
            next(calls)
        except StopIteration as end:
            result: T = end.value
            return result
