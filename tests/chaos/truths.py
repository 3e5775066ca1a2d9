"""What each query means, in plain Python: its output, and the right answers, for the judge."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tether.testing.judge import Answer

    Bag = Counter[tuple[Any, ...]]
    """Rows of all epochs, each with its epoch first."""
    Output = list[dict[str, Any]]
    """Rows of all epochs, each with its epoch."""


def keys_of(table: pa.Table) -> list[Any]:
    return list(table["k"].to_pylist())


def words_of(table: pa.Table) -> list[Any]:
    return [word for line in table["value"].to_pylist() for word in line.split()]


def _so_far(
    tables: list[pa.Table], of: Callable[[pa.Table], list[Any]]
) -> Iterator[tuple[int, set[Any], Counter[Any]]]:
    totals: Counter[Any] = Counter()
    for epoch, table in enumerate(tables):
        totals.update(of(table))
        yield epoch, set(of(table)), totals


# ---- what is written ----------------------------------------------------------------------------


def counted(of: Callable[[pa.Table], list[Any]]) -> Callable[[list[pa.Table]], Bag]:
    """Each epoch gives its keys' counts as of then."""
    return lambda tables: Counter(
        (epoch, key, totals[key]) for epoch, now, totals in _so_far(tables, of) for key in now
    )


def heavy(threshold: int) -> Callable[[list[pa.Table]], Bag]:
    """Each epoch gives all keys that have come so often, with no surplus in their estimates."""
    return lambda tables: Counter(
        (epoch, key, total, 0)
        for epoch, _, totals in _so_far(tables, keys_of)
        for key, total in totals.items()
        if total >= threshold
    )


def best(number: int, panes: int) -> Callable[[list[pa.Table]], Bag]:
    """Each epoch, a pane long, gives the most frequent keys of its window, ranked."""

    def truth(tables: list[pa.Table]) -> Bag:
        found: Bag = Counter()
        for epoch in range(len(tables)):
            window = tables[max(0, epoch + 1 - panes) : epoch + 1]
            totals = Counter(key for table in window for key in keys_of(table))
            ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:number]
            found.update((epoch, key, n, rank) for rank, (key, n) in enumerate(ordered, start=1))
        return found

    return truth


def fed_back(tables: list[pa.Table]) -> Bag:
    """Every row carries the feedback of the epoch before."""
    sizes = enumerate(table.num_rows for table in tables)
    return Counter({(epoch, epoch if epoch else -1): rows for epoch, rows in sizes})


# ---- what is judged -----------------------------------------------------------------------------
#
# Each pair: the right answers from the rows, and the answers as they were given, one for each epoch.


def true_totals(of: Callable[[pa.Table], list[Any]]) -> Callable[[list[pa.Table]], list[Answer]]:
    return lambda tables: [{"": dict(totals)} for _, _, totals in _so_far(tables, of)]


def newest(key: str, value: str) -> Callable[[Output, int], list[Answer]]:
    """Of each key the newest value that was given."""

    def given(output: Output, epochs: int) -> list[Answer]:
        known: dict[Any, Any] = {}
        answers: list[Answer] = []
        for epoch in range(epochs):
            known |= {row[key]: row[value] for row in output if row["epoch"] == epoch}
            answers.append({"": dict(known)})
        return answers

    return given


def true_heavy(threshold: int) -> Callable[[list[pa.Table]], list[Answer]]:
    """Counts, but of what is below the threshold only that it is: so near it a key may be named."""
    return lambda tables: [
        {"": {key: n for key, n in totals.items() if n >= threshold}}
        for _, _, totals in _so_far(tables, keys_of)
    ]


def of_each_epoch(key: str, value: str) -> Callable[[Output, int], list[Answer]]:
    """What was given in each epoch, and nothing from before."""
    return lambda output, epochs: [
        {"": {row[key]: row[value] for row in output if row["epoch"] == epoch}}
        for epoch in range(epochs)
    ]


def true_best(number: int, panes: int) -> Callable[[list[pa.Table]], list[Answer]]:
    """How often the most frequent keys came, by rank: which ones they are, an error may decide."""

    def truth(tables: list[pa.Table]) -> list[Answer]:
        rows = best(number, panes)(tables)
        return [
            {"": {rank: n for at, _, n, rank in rows if at == epoch}}
            for epoch in range(len(tables))
        ]

    return truth


def true_models(tables: list[pa.Table]) -> list[Answer]:
    return [{"": {"least": epoch or -1, "most": epoch or -1}} for epoch in range(len(tables))]


def models(output: Output, epochs: int) -> list[Answer]:
    """The oldest and the newest model in use in each epoch."""
    answers: list[Answer] = []
    for epoch in range(epochs):
        used = [row["model"] for row in output if row["epoch"] == epoch]
        answers.append({"": {"least": min(used), "most": max(used)}})
    return answers


def true_weights(tables: list[pa.Table]) -> list[Answer]:
    """Logistic regression by descent, in two parts that are averaged after every epoch."""
    names = ("x0", "x1", "x2")
    weights, steps, answers = [0.0] * 4, 0, []
    for table in tables:
        rows = table.to_pylist()
        reports = []
        for part in sorted({row["part"] for row in rows}):
            own = [row for row in rows if row["part"] == part]
            learned, taken = list(weights), steps
            for start in range(0, len(own), 100):
                batch = own[start : start + 100]
                taken += 1
                rate = 0.5 / math.sqrt(taken) / len(batch)
                errors = []
                for row in batch:
                    margin = learned[3] + sum(learned[n] * row[x] for n, x in enumerate(names))
                    errors.append(1 / (1 + math.exp(-margin)) - row["label"])
                for n, x in enumerate(names):
                    learned[n] -= rate * sum(
                        e * row[x] for e, row in zip(errors, batch, strict=True)
                    )
                learned[3] -= rate * sum(errors)
            reports.append((len(own), learned, taken))
        total = sum(size for size, _, _ in reports)
        weights = [
            weights[n]
            + sum(size * (learned[n] - weights[n]) for size, learned, _ in reports) / total
            for n in range(4)
        ]
        steps = max(taken for _, _, taken in reports)
        answers.append({"": dict(enumerate(weights))})
    return answers
