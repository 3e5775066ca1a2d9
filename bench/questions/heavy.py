"""Heavy hitters: pairs of addresses that sent at least the 4,000th part of all bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.questions.question import Question
from tether.data import packets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Pairs = frozenset[tuple[int, int]]
PART = 4_000


class Heavy(NamedTuple):
    """The truth."""

    threshold: float
    """Bytes from which on a pair is heavy."""
    pairs: Pairs


class HeavyHitters(Question):
    """Which pairs are heavy? None may be missing; a sketch may name a few more."""

    schema = "src long, dst long, bytes long"

    def tables(self) -> Iterator[pa.Table]:
        """Packet headers."""
        scenario = self.scenario
        found = packets(
            scenario.total_epochs,
            scenario.rows,
            flows=scenario.keys,
            skew=scenario.skew,
            seed=scenario.seed,
        )
        for table in found:
            yield table.select(["src", "dst", "bytes"])

    def truth(self, files: Sequence[Path]) -> Heavy:
        """By Arrow: sums of an epoch, then of these."""
        parts = [pq.read_table(path).group_by(["src", "dst"]) for path in files]
        folded = pa.concat_tables([part.aggregate([("bytes", "sum")]) for part in parts])
        sums = folded.group_by(["src", "dst"]).aggregate([("bytes_sum", "sum")])
        totals = sums["bytes_sum_sum"]
        threshold = float(pc.sum(totals).as_py()) / PART
        heavy = sums.filter(pc.greater_equal(totals, threshold))
        pairs = zip(heavy["src"].to_pylist(), heavy["dst"].to_pylist(), strict=True)
        return Heavy(threshold, frozenset(pairs))

    def is_right(self, answer: Pairs, truth: Heavy) -> bool:
        """No heavy pair is missing."""
        return truth.pairs <= answer

    def shown(self, answer: Pairs) -> dict[str, int]:
        """How many were named."""
        return {"heavy": len(answer)}
