"""Logistic regression: a model that learns from the stream, as good as one process would make it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bench.questions.question import Question
from tether.algorithms.features import DenseFeatures
from tether.algorithms.logistic_model import LogisticModel
from tether.data import dense_examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TESTED = 50_000
"""Rows that a model is tested on, which it has never seen."""
WORSE = 0.01
"""Part of the test rows by which a model may be worse than that of one process."""
LABEL = "label"


class Regression(Question):
    """Which weights? Two models that learn in another order differ, so their predictions count."""

    @cached_property
    def features(self) -> DenseFeatures:
        """As many as the scenario has columns."""
        return DenseFeatures([f"x{number}" for number in range(self.scenario.columns)])

    @property
    def schema(self) -> str:
        """Features, and a label of 0 or 1."""
        return ", ".join([*(f"{name} double" for name in self.features.columns()), "label int"])

    def tables(self) -> Iterator[pa.Table]:
        """Labelled rows of a true model."""
        return self._examples(self.scenario.total_epochs)

    def _examples(self, epochs: int) -> Iterator[pa.Table]:
        scenario = self.scenario
        options = {"features": scenario.columns, "seed": scenario.seed}
        return dense_examples(epochs, scenario.rows, noise=0.3, **options)

    @cached_property
    def _test(self) -> pa.RecordBatch:
        *_, test = self._examples(self.scenario.total_epochs + 1)
        return one_batch(test.slice(0, TESTED))

    def truth(self, files: Sequence[Path]) -> float:
        """The prediction rate of a model that numpy has learned, row after row."""
        model = LogisticModel(self.features)
        for path in files:
            model.partial_fit(one_batch(pq.read_table(path)), LABEL)
        return self.rate(model)

    def rate(self, model: LogisticModel) -> float:
        """The part of the test rows that a model predicts right."""
        return model.score(self._test, LABEL)

    def is_right(self, answer: LogisticModel, truth: float) -> bool:
        """Its predictions are as good, or nearly."""
        return self.rate(answer) >= truth - WORSE

    def shown(self, answer: LogisticModel) -> dict[str, float]:
        """The prediction rate."""
        return {"prediction_rate": round(self.rate(answer), 4)}


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table in one piece."""
    return table.combine_chunks().to_batches()[0]
