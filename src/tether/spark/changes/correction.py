"""What a tentative answer and the stable one after it make together: rows to take back, rows to put."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from tether.spark.changes.columns import (
    AFTER,
    BEFORE,
    CHANGE_COLUMNS,
    CHANGE_TYPE,
    COMMIT_VERSION,
    DELETE,
    EPOCH,
    FIDELITY,
    INSERT,
    STABILITY,
    Mark,
    marked,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_OLD, _NEW, _TURN, _SIDE = "__tether_old", "__tether_new", "__tether_turn", "__tether_change"


def corrected(
    tentative: DataFrame,
    stable: DataFrame,
    epoch: int,
    mark: Mark,
    key: Sequence[str],
) -> DataFrame:
    """The changes from a tentative answer of an epoch to the stable one.

    Args:
        tentative: The rows that were given.
        stable: The rows that should have been.
        epoch: The epoch that both speak of.
        mark: Of the stable rows.
        key: Columns that say which row replaces which. Without them nobody knows: every tentative row
            is deleted, every stable one inserted.
    """
    if not key:
        gone = marked(tentative, DELETE, epoch, mark)
        return gone.unionByName(marked(stable, INSERT, epoch, mark))
    pairs = _side(tentative, key, _OLD).join(
        _side(stable, key, _NEW),
        on=[F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")) for name in ("key", _TURN)],
        how="full_outer",
    )
    old, new = F.col(_OLD), F.col(_NEW)
    both = old.isNotNull() & new.isNotNull()
    sides = F.when(
        both,
        F.array(_change(old, BEFORE, "tentative"), _change(new, AFTER, "stable")),
    ).otherwise(
        F.when(old.isNotNull(), F.array(_change(old, DELETE, "stable"))).otherwise(
            F.array(_change(new, INSERT, "stable"))
        )
    )
    rows = pairs.select(F.explode(sides).alias(_SIDE))
    own = [F.col(f"{_SIDE}.row.`{name}`").alias(name) for name in stable.columns]
    rest = {
        CHANGE_TYPE: F.col(f"{_SIDE}.change"),
        COMMIT_VERSION: F.lit(mark.version),
        STABILITY: F.col(f"{_SIDE}.stability"),
        EPOCH: F.lit(epoch),
        FIDELITY: F.lit(mark.fidelity),
    }
    return rows.select(
        *own, *[rest[name].cast(kind).alias(name) for name, kind in CHANGE_COLUMNS.items()]
    )


def _side(rows: DataFrame, key: Sequence[str], name: str) -> DataFrame:
    """One side of the pairs: key, number among rows of equal key, the row itself."""
    columns = [F.col(f"`{one}`") for one in rows.columns]
    shown = rows.select(
        F.struct(*[F.col(f"`{one}`") for one in key]).alias("key"), F.struct(*columns).alias(name)
    )
    # Rows of equal key are paired in the order of their values: any order would be right.
    turn = F.row_number().over(Window.partitionBy("key").orderBy(F.to_json(name)))
    return shown.withColumn(_TURN, turn).alias("a" if name == _OLD else "b")


def _change(row: Column, change: str, stability: str) -> Column:
    return F.struct(
        row.alias("row"), F.lit(change).alias("change"), F.lit(stability).alias("stability")
    )
