"""Where output goes: any function ``(DataFrame, epoch)``, or a format that Spark can write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Sink = Callable[["DataFrame", int], None]


def discard(rows: DataFrame, epoch: int) -> None:
    """Run the epoch and keep no output."""
    del epoch
    rows.write.format("noop").mode("append").save()


def take_back(sink: Sink, epoch: int) -> None:
    """Tell a sink that the output of this epoch and all after it will be given again.

    Only a sink that has a method ``take_back(epoch)`` is told.
    """
    method = getattr(sink, "take_back", None)
    if method is not None:
        method(epoch)


def to_format(name: str, *, mode: str = "append", **options: str) -> Sink:
    """A sink that appends every epoch's rows with one of Spark's batch writers.

    Delivery is at least once: an epoch that is run again after a crash is written again. Use
    ``tether.to_epochs`` where that matters, or a function and the epoch number.

    Args:
        name: A format that Spark can write: "parquet", "json", "kafka", "console", "delta", ….
        mode: Spark's save mode, for each epoch.
        options: The writer's options, "path" among them.

    Example:
        >>> sink = to_format("parquet", path="counts")
        >>> callable(sink)
        True
    """

    def write(rows: DataFrame, epoch: int) -> None:
        del epoch
        rows.write.format(name).mode(mode).options(**options).save()

    return write


def as_sink(output: Sink | str | None) -> Sink:
    """Accept what a user may pass as output.

    Raises:
        BadValueError: It is neither a function, nor a format's name, nor None.
    """
    if output is None:
        return discard
    if isinstance(output, str):
        return to_format(output)
    if callable(output):
        return output
    raise BadValueError(
        f"The output {output!r} is not something rows can be sent to.",
        do='Pass a function (df, epoch), a format such as "console", tether.to_format(...) or None.',
    )
