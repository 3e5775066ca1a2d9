"""The queries that exact policies are tried on: input, graph, and what each epoch must have given."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

import tether
from tether.algorithms.aggregate import KeyedAggregate
from tether.algorithms.heavy_hitters import GlobalSketch, LocalSketch
from tether.algorithms.top_k import SliceCounts, TopK, WindowCounts
from tether.algorithms.word_count import MergedCounts, PartialCounts
from tether.spark.faults import Fault
from tether.testing.epochs import read_epochs

from .counting import skewed_keys
from .test_graphs import Ahead, Behind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLICIES = {
    "mini-batch": tether.MiniBatch(),
    "upstream-backup": tether.UpstreamBackup(0.4),
    "barrier-sync": tether.Barrier(3, mode="sync"),
    "barrier-async": tether.Barrier(2),
}
HEAVY = 60  # rows
BEST, PANES = 4, 3


@dataclass(frozen=True)
class Kind:
    """A query over epochs of known rows."""

    schema: str
    tables: Callable[[int], list[pa.Table]]
    """So many epochs of rows."""
    build: Callable[[Any], Any]
    slots: dict[str, int]
    answers: Callable[[list[pa.Table]], Counter[tuple[Any, ...]]]
    """All rows that a run without failures gives, each with its epoch first."""
    columns: tuple[str, ...]
    """Of these rows, after the epoch."""

    def check(self, tables: list[pa.Table], out: Path) -> None:
        """Every epoch's rows are there, each once, and no others."""
        rows = ds.dataset(out, partitioning="hive", exclude_invalid_files=True).to_table()
        rows = rows.select(["epoch", *self.columns])
        assert Counter(tuple(row.values()) for row in rows.to_pylist()) == self.answers(tables)


def keys(epochs: int) -> list[pa.Table]:
    return skewed_keys(epochs, rows=300, keys=40, seed=4)


def timed_keys(epochs: int) -> list[pa.Table]:
    """An epoch is a second."""
    return [
        table.append_column("time", pa.array([epoch + 0.5] * table.num_rows))
        for epoch, table in enumerate(keys(epochs))
    ]


def lines(epochs: int) -> list[pa.Table]:
    made = []
    for table in keys(epochs):
        words = [f"word{key}" for key in table["k"].to_pylist()]
        made.append(pa.table({"value": [" ".join(words[at : at + 5]) for at in range(0, 300, 5)]}))
    return made


def _so_far(tables: list[pa.Table], of: Callable[[pa.Table], list[Any]]) -> Any:
    totals: Counter[Any] = Counter()
    for epoch, table in enumerate(tables):
        totals.update(of(table))
        yield epoch, set(of(table)), totals


def _keys_of(table: pa.Table) -> list[Any]:
    return list(table["k"].to_pylist())


def _words_of(table: pa.Table) -> list[Any]:
    return [word for line in table["value"].to_pylist() for word in line.split()]


def _changed(of: Callable[[pa.Table], list[Any]]) -> Any:
    """Each epoch gives its keys' counts as of then."""
    return lambda tables: Counter(
        (epoch, key, totals[key]) for epoch, now, totals in _so_far(tables, of) for key in now
    )


def _heavy(tables: list[pa.Table]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (epoch, key, total, 0)
        for epoch, _, totals in _so_far(tables, _keys_of)
        for key, total in totals.items()
        if total >= HEAVY
    )


def _best(tables: list[pa.Table]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for epoch in range(len(tables)):
        window = tables[max(0, epoch + 1 - PANES) : epoch + 1]
        totals = Counter(key for table in window for key in _keys_of(table))
        ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:BEST]
        found.update((epoch, key, n, rank) for rank, (key, n) in enumerate(ordered, start=1))
    return found


def _models(tables: list[pa.Table]) -> Counter[tuple[Any, ...]]:
    """Feedback of each epoch is used in the next one."""
    sizes = enumerate(table.num_rows for table in tables)
    return Counter({(epoch, epoch if epoch else -1): rows for epoch, rows in sizes})


def _count(stream: Any) -> Any:
    return stream.apply(KeyedAggregate(divergence="l1"), key="k", parallelism=2)


def _count_words(stream: Any) -> Any:
    parts = stream.apply(PartialCounts(), parallelism=2)
    return parts.apply(MergedCounts(), key="word", parallelism=2)


def _hit(stream: Any) -> Any:
    local = LocalSketch(["k"], threshold=HEAVY, spread_over=2)
    return stream.apply(local, parallelism=2).apply(GlobalSketch(threshold=HEAVY), parallelism=1)


def _rank(stream: Any) -> Any:
    counts = stream.apply(SliceCounts("k", time="time", pane=1.0), parallelism=2)
    window = counts.apply(WindowCounts(k=BEST, panes=PANES), key="k", parallelism=2)
    return window.apply(TopK(BEST), parallelism=1, feedback_to=window)


def _loop(stream: Any) -> Any:
    ahead = stream.apply(Ahead(), key="k", parallelism=2)
    return ahead.apply(Behind(), parallelism=1, feedback_to=ahead)


KINDS = {
    "aggregate": Kind(
        "k long", keys, _count, {"keyed_aggregate": 2}, _changed(_keys_of), ("k", "count")
    ),
    "word-count": Kind(
        "value string",
        lines,
        _count_words,
        {"partial_counts": 2, "merged_counts": 2},
        _changed(_words_of),
        ("word", "count"),
    ),
    "heavy-hitters": Kind(
        "k long",
        keys,
        _hit,
        {"local_sketch": 2, "global_sketch": 1},
        _heavy,
        ("k", "estimate", "surplus"),
    ),
    "top-k": Kind(
        "k long, time double",
        timed_keys,
        _rank,
        {"slice_counts": 2, "window_counts": 2, "top_k": 1},
        _best,
        ("k", "n", "rank"),
    ),
    "loop": Kind("k long", keys, _loop, {"ahead": 2, "behind": 1}, _models, ("model",)),
}


def start(session: Any, kind: Kind, policy: Any, work: Path, faults: list[Fault], **options: Any):
    """The query on the directories below ``work``; its input is in ``in``."""
    rows = tether.stream(read_epochs(session, work / "in", kind.schema))
    return kind.build(rows).start(
        tether.to_epochs(str(work / "out")),
        tolerance=policy,
        backup=str(work / "backup"),
        checkpoint=str(work / "checkpoint"),
        arena_dir=str(work / "arena"),
        faults=faults,
        **options,
    )


def forget(work: Path, kind: Kind, epoch: int, *, only: int | None = None) -> list[Fault]:
    """Resident state removed: of one slot, or of all slots of all operators."""
    slots = [(operator, slot) for operator, n in kind.slots.items() for slot in range(n)]
    return [
        Fault(
            point="before-attach",
            action="forget",
            epoch=epoch,
            slot=slot,
            operator=operator,
            marker=str(work / f"forgot-{epoch}-{operator}-{slot}"),
        )
        for operator, slot in (slots if only is None else [slots[only]])
    ]
