"""The one way by which the rows of every epoch, under every policy, reach a sink.

A sink that did not ask for tentative rows is called with stable ones only, just as they are. One that
did is called with rows that say what they are (:mod:`tether.spark.changes.columns`): for a tentative
epoch at once, and again for the same epoch when its stable rows are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from tether.core.errors import BadValueError
from tether.core.ids import Epoch
from tether.spark.changes.columns import INSERT, Mark, check_columns, marked
from tether.spark.changes.correction import corrected
from tether.spark.changes.few import FEW, can_compare, corrected_few
from tether.spark.changes.spool import TentativeSpool
from tether.spark.sinks import take_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tether.spark.sinks import Sink


class Outlet:
    """A sink, and the kinds of rows that it takes.

    Args:
        sink: The user's.
        spool: Where its tentative rows are kept; None where it takes none.
        key: Columns that say which row a correction replaces.
    """

    def __init__(
        self, sink: Sink, spool: TentativeSpool | None = None, key: Sequence[str] = ()
    ) -> None:
        self.sink, self.spool, self.key = sink, spool, list(key)
        self._write = getattr(sink, "write_changes", None)
        self._checked = False
        self._usual_rows: int | None = None
        """Approximate number of rows of an epoch; None if not known."""

    def expect(self, usual_rows: int | None) -> None:
        """An epoch has about this number of rows; None if it is not known."""
        self._usual_rows = usual_rows

    @property
    def takes_tentative(self) -> bool:
        """Whether the sink is given tentative rows, and their corrections."""
        return self.spool is not None

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        """Give the rows of an epoch of a query from which nothing is missing."""
        self.give(rows, epoch, Mark("stable", epoch))

    def give(self, rows: DataFrame, epoch: int, mark: Mark) -> None:
        """Give the rows of an epoch.

        Args:
            rows: The rows.
            epoch: The epoch that they speak of.
            mark: Their kind, and what else applies to them.
        """
        if self.spool is None:
            if mark.kind == "stable":
                self.sink(rows, epoch)
            return
        self.check(rows)
        if mark.kind == "tentative":
            kept = self._keep(self.spool, rows, epoch, "given")
            self.write(marked(kept, INSERT, epoch, mark), epoch, mark)
            return
        given = self.spool.given(rows.sparkSession, rows, epoch)
        if given is None:
            self.write(marked(rows, INSERT, epoch, mark), epoch, mark)
            return
        # Stored first, so that the operators run only once, however often the rows are used.
        stable = self._keep(self.spool, rows, epoch, "stable")
        if can_compare(rows) and self.spool.rows(epoch) + self.spool.rows(epoch, "stable") <= FEW:
            like = to_arrow_schema(rows.schema, timezone="UTC")
            both = self.spool.table(like, epoch), self.spool.table(like, epoch, "stable")
            self.write(corrected_few(both, rows, epoch, mark, self.key), epoch, mark)
        else:
            self.write(corrected(given, stable, epoch, mark, self.key), epoch, mark)

    def _keep(self, spool: TentativeSpool, rows: DataFrame, epoch: int, name: str) -> DataFrame:
        """Rows of an epoch, durable: by way of the driver if few are expected, else by Spark."""
        few = self._usual_rows is not None and self._usual_rows <= FEW and can_compare(rows)
        table = _fetched(rows) if few and not spool.has(epoch, name) else None
        if table is None:
            kept = spool.keep(rows, epoch, name)
        else:
            kept = spool.keep_table(table, rows, epoch, name)
        self._usual_rows = spool.rows(epoch, name)
        return kept

    def check(self, rows: DataFrame) -> None:
        """Refuse rows whose columns are named like ours."""
        if not self._checked:
            check_columns(rows.columns, self.key)
            self._checked = True

    def write(self, rows: DataFrame, epoch: int, mark: Mark) -> None:
        """Give the sink rows with their marks."""
        if self._write is None:
            self.sink(rows, epoch)
        else:  # it keeps the kinds of an epoch apart, also where it has no rows
            self._write(rows, epoch, mark)

    def outstanding(self) -> list[int]:
        """Epochs whose rows are tentative so far, oldest first."""
        return [] if self.spool is None else self.spool.outstanding()

    def given(self, epoch: int) -> tuple[int, float]:
        """How many tentative rows of an epoch were given, and when, in Unix seconds."""
        if self.spool is None:
            return 0, 0.0
        return self.spool.rows(epoch), self.spool.given_at(epoch)

    def settle(self, epoch: int) -> None:
        """The stable rows of an epoch have been given, and a note that says so is durable."""
        if self.spool is not None:
            self.spool.forget(epoch)

    def take_back(self, epoch: int) -> None:
        """The output of this epoch and all after it will be given again."""
        take_back(self.sink, epoch)


def _fetched(rows: DataFrame) -> pa.Table | None:
    """The rows, in the driver; None if they are too many after all."""
    try:
        return rows.toArrow().cast(to_arrow_schema(rows.schema, timezone="UTC"))
    except Exception as error:
        if "spark.driver.maxResultSize" not in str(error):
            raise
        return None


def bound_outlet(outlet: Sink, mark: Callable[[Epoch], Mark | None]) -> Sink:
    """An outlet for one of the runs of a query: what its rows are, the run knows.

    Args:
        outlet: The outlet; any other sink gets stable rows only.
        mark: What is true of the rows of an epoch; None: they are not to be given.
    """

    def give(rows: DataFrame, epoch: int) -> None:
        told = mark(Epoch(epoch))
        if told is not None and isinstance(outlet, Outlet):
            outlet.give(rows, epoch, told)
        elif told is not None and told.kind == "stable":
            outlet(rows, epoch)

    return give


def outlet_for(sink: Sink, tentative: bool | Sequence[str], checkpoint: str, number: int) -> Outlet:
    """The outlet of a sink, as the user asked for it.

    Args:
        sink: The user's.
        tentative: Whether it wants tentative rows; or the columns that name a row. A sink that has
            an attribute ``takes_tentative`` wants them anyway, and may name such columns in ``key``.
        checkpoint: Spark's checkpoint directory.
        number: The sink's among those of its query.

    Raises:
        BadValueError: What was asked for is neither.
    """
    if isinstance(tentative, str) or not isinstance(tentative, bool | list | tuple):
        raise BadValueError(
            f"tentative={tentative!r} cannot be used.",
            do="Pass True, False, or a list of the columns that name a row of the output.",
        )
    key = [] if isinstance(tentative, bool) else list(tentative)
    wants = bool(tentative) or bool(getattr(sink, "takes_tentative", False))
    if not wants:
        return Outlet(sink)
    return Outlet(sink, TentativeSpool(checkpoint, number), key or getattr(sink, "key", []))
