"""Logistic regression that learns mini-batch by mini-batch: the numbers, without any stream."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    import pyarrow as pa

    from tether.algorithms.features import Examples, Features, Flags, Floats


class Learned(NamedTuple):
    """What a pass over examples showed, each predicted before it was learned from."""

    steps: int
    """Mini-batches so far, in all."""
    correct: int
    """Examples whose label was predicted right."""
    loss: float
    """Sum of their log losses, in nats."""


class Descent:
    """Stochastic gradient descent with the learning rate η·t^-½ (AF-Stream 2019 §4).

    Args:
        rate: η, the learning rate of the first mini-batch.
        batch_size: Examples per step. Larger is faster by the row, and learns less by the row.
        ridge: Weight decay: pulls unused weights to 0.
    """

    def __init__(self, *, rate: float = 0.5, batch_size: int = 100, ridge: float = 0.0) -> None:
        if not (rate > 0 and math.isfinite(rate)) or batch_size < 1 or not 0 <= ridge < 1:
            raise BadValueError(
                f"rate={rate}, batch_size={batch_size}, ridge={ridge} cannot be used.",
                do="Give a rate above 0, a batch size of at least 1, and a ridge from 0 to below 1.",
            )
        self.rate, self.batch_size, self.ridge = rate, batch_size, ridge

    def learn(self, weights: Floats, examples: Examples, labels: Floats, steps: int) -> Learned:
        """Move the weights, in place, over all examples; each mini-batch is two matrix products.

        Raises:
            BadValueError: A weight is no finite number any more: the learning rate is too large.
        """
        correct, loss = 0, 0.0
        for start in range(0, examples.count, self.batch_size):
            rows = slice(start, min(start + self.batch_size, examples.count))
            steps += 1
            margins = examples.margins(weights, rows)
            known = labels[rows]
            errors = sigmoid(margins) - known
            correct += int(np.count_nonzero((margins > 0) == (known > 0.5)))
            loss += float(log_losses(margins, known).sum())
            eta = self.rate / math.sqrt(steps)
            if self.ridge:
                weights *= 1 - eta * self.ridge
            examples.descend(weights, rows, errors * (eta / len(errors)))
        if not np.isfinite(weights).all():
            raise BadValueError(
                "The model has run away: some of its weights are not finite.",
                why="The learning rate is too large for features of this size.",
                do="Scale the features to about 1, or give a smaller rate.",
            )
        return Learned(steps, correct, loss)


class LogisticModel:
    """Weights and the features that they belong to: for predicting, and for learning at hand.

    Example:
        >>> import pyarrow as pa
        >>> from tether.algorithms.features import DenseFeatures
        >>> model = LogisticModel(DenseFeatures(["x"]))
        >>> rows = pa.record_batch({"x": [-1.0, 1.0] * 500, "y": [0, 1] * 500})
        >>> model.partial_fit(rows, "y").predict(rows).tolist()[:2]
        [False, True]
    """

    def __init__(
        self,
        features: Features,
        weights: Floats | None = None,
        *,
        steps: int = 0,
        descent: Descent | None = None,
    ) -> None:
        self.features = features
        self.weights = np.zeros(features.size) if weights is None else np.array(weights, float)
        if len(self.weights) != features.size:
            raise BadValueError(
                f"{len(self.weights)} weights do not fit {features.size - 1} features.",
                why="There is one weight for each feature, and the intercept.",
                do="Use the weights that were learned with these features.",
            )
        self.steps = steps
        self._descent = descent or Descent()

    def partial_fit(self, rows: pa.RecordBatch, label: str) -> LogisticModel:
        """Learn from some more rows; those that cannot be used are skipped. Gives itself."""
        examples, labels = labelled(self.features, rows, label)
        local, places = gathered(self.weights, examples)
        self.steps = self._descent.learn(local, examples, labels, self.steps).steps
        self.weights[slice(None) if places is None else places] = local
        return self

    def probability(self, rows: pa.RecordBatch) -> Floats:
        """The probability of label 1 for each row; NaN where its features cannot be used."""
        examples, good = self.features.read(rows)
        result = np.full(rows.num_rows, np.nan)
        result[good] = sigmoid(self._margins(examples))
        return result

    def predict(self, rows: pa.RecordBatch) -> Flags:
        """Whether label 1 is more likely than 0."""
        return self.probability(rows) > 0.5

    def score(self, rows: pa.RecordBatch, label: str) -> float:
        """The prediction rate: the part of usable rows whose label is predicted right."""
        examples, labels = labelled(self.features, rows, label)
        return float(np.mean((self._margins(examples) > 0) == (labels > 0.5)))

    def log_loss(self, rows: pa.RecordBatch, label: str) -> float:
        """The mean log loss of usable rows, in nats; 0.693 is a coin's."""
        examples, labels = labelled(self.features, rows, label)
        return float(log_losses(self._margins(examples), labels).mean())

    def _margins(self, examples: Examples) -> Floats:
        local, _ = gathered(self.weights, examples)
        return examples.margins(local, slice(0, examples.count))


def labelled(features: Features, rows: pa.RecordBatch, label: str) -> tuple[Examples, Floats]:
    """The examples that can be learned from, and their labels: 0 and 1, or false and true."""
    labels = rows.column(label).to_numpy(zero_copy_only=False).astype(np.float64)
    known = (labels == 0) | (labels == 1)
    if not known.all():
        rows, labels = rows.filter(known), labels[known]
    examples, good = features.read(rows)
    return examples, labels if good.all() else labels[good]


def gathered(weights: Floats, examples: Examples) -> tuple[Floats, np.ndarray | None]:
    """A copy of the weights that the examples use, and their places (None: all)."""
    places = examples.touched()
    return (weights.copy(), None) if places is None else (weights[places], places)


def sigmoid(margins: Floats) -> Floats:
    """1 / (1 + e^-x), without overflow."""
    result: Floats = 0.5 * (1.0 + np.tanh(0.5 * margins))
    return result


def log_losses(margins: Floats, labels: Floats) -> Floats:
    """-ln of the probability given to the true label."""
    result: Floats = np.logaddexp(0.0, np.where(labels > 0.5, -margins, margins))
    return result
