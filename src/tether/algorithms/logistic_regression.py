"""Online logistic regression on many slots, with a feedback loop.

Upstream slots learn local models; downstream one slot averages what they learned into a global
model and feeds it back (AF-Stream 2019 §6.1, experiment 5).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.algorithms.logistic_model import Descent, LogisticModel, gathered, labelled
from tether.core.errors import BadValueError
from tether.operator import Loss, Operator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tether.algorithms.features import Features, Floats
    from tether.output import Output
    from tether.state.slot import SlotState

_NOT_COUNTED = {"value": 0.0}
# Places in the vector of things that are reported and need not survive a loss.
TUPLES, CORRECT, LOSS, SKIPPED, VERSION = range(5)
_REPORTED = [TUPLES, CORRECT, LOSS, SKIPPED]
_UNKNOWN = -1


class LocalModel(Operator):
    """Upstream: learn from this slot's rows; report what was learned; follow the global model.

    Divergence: the Euclidean distance of the weights, plus that of log2 of the clock: a loss makes
    both at most θ older. Whatever it took comes back with the next global model.

    Rows with a null, NaN or infinite feature, an array of wrong length, or a label other than 0 and
    1 have no gradient. They are counted as skipped and reported, or refused with ``on_bad="error"``.

    Args:
        features: ``DenseFeatures``, ``VectorFeatures`` or ``HashedFeatures``.
        label: Column of labels: 0 and 1, or flags.
        descent: Learning rate and size of mini-batches.
        report_every: Rows between two reports, at least; reports are made at epochs' ends.
        on_bad: "skip" or "error".
    """

    growth = math.inf  # steps of another length, by another clock, can take two models apart

    output = (
        "tuples bigint, correct bigint, loss double, skipped bigint, steps bigint, model bigint, "
        "cells binary, changes binary"
    )

    def __init__(
        self,
        features: Features,
        label: str = "label",
        *,
        descent: Descent | None = None,
        report_every: int = 1_000,
        on_bad: str = "skip",
    ) -> None:
        if on_bad not in ("skip", "error"):
            raise BadValueError(f"on_bad={on_bad!r} is not known.", do='Use "skip" or "error".')
        self._features, self._label, self._on_bad = features, label, on_bad
        self._descent = descent or Descent()
        self._report_every = report_every

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Check the columns."""
        del key
        check_features(self._features, schema, self._label)

    def parameters(self) -> Mapping[str, object]:
        """What gives the weights their meaning."""
        return {"features": self._features.columns(), "size": self._features.size}

    def setup(self, state: SlotState) -> None:
        """Weights, the same as of the last report, the clock, and counts since then."""
        size = self._features.size
        self._weights = state.vector("weights", size, divergence="l2")
        self._clock = Clock(state)
        self._base = state.vector("base", size, divergence="max", weights=_NOT_COUNTED)
        self._counts = state.vector("counts", 5, divergence="max", weights=_NOT_COUNTED)

    def on_feedback(self, items: pa.RecordBatch, out: Output) -> None:
        """Take the newest global model over, once."""
        del out
        newest = items.slice(items.num_rows - 1, 1).to_pylist()[0]
        if newest["version"] <= self._counts.values[VERSION]:
            return
        learned = unpacked(newest["cells"], newest["changes"], self._features.size)
        _put_changes(self._weights, learned)
        _put_changes(self._base, learned)
        self._clock.at_least(newest["steps"])
        self._counts.put([VERSION], [newest["version"]])

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Learn: a few matrix products for each mini-batch."""
        del out
        examples, labels = labelled(self._features, batch, self._label)
        skipped = batch.num_rows - examples.count
        if skipped and self._on_bad == "error":
            raise BadValueError(
                f"{skipped} of {batch.num_rows} rows have no gradient.",
                why="A feature is null, NaN or infinite, an array has another length, or a label is "
                "neither 0 nor 1.",
                do='Mend the rows, or let them be counted and skipped: on_bad="skip".',
            )
        local, places = gathered(self._weights.values, examples)
        learned = self._descent.learn(local, examples, labels, self._clock.steps)
        self._weights.put(places, local, unique=True)
        self._clock.at_least(learned.steps)
        self._counts.add(
            _REPORTED,
            [examples.count, learned.correct, learned.loss, skipped],
            unique=True,
        )

    def on_epoch_end(self, out: Output) -> None:
        """Report by how much the weights have moved."""
        counts = self._counts.values
        if counts[TUPLES] + counts[SKIPPED] < max(self._report_every, 1):
            return
        cells, changes = packed(self._weights.values - self._base.values)
        out.emit(
            {
                "tuples": [int(counts[TUPLES])],
                "correct": [int(counts[CORRECT])],
                "loss": [float(counts[LOSS])],
                "skipped": [int(counts[SKIPPED])],
                "steps": [self._clock.steps],
                "model": [int(counts[VERSION])],
                "cells": [cells],
                "changes": [changes],
            }
        )
        _put_changes(self._base, self._weights.values)
        self._counts.put(_REPORTED, 0.0, unique=True)

    def on_recover(self, loss: Loss) -> None:
        """Go on from the backup's weights: what was reported before is not reported again."""
        del loss
        self._base.put(None, self._weights.values)
        self._counts.clear()
        self._counts.put([VERSION], _UNKNOWN)


_NOW, _LAG = 0, 1


class GlobalModel(Operator):
    """Downstream: add the mean of what the local models learned; feed the result back.

    Apply it in one slot, with ``feedback_to=`` the stream of ``LocalModel``. Emits one row for each
    epoch with reports: ``version`` (which counts iterations), ``steps``, ``tuples``,
    ``prediction_rate`` and ``log_loss`` (of rows before they were learned from), ``skipped``,
    ``l1_change`` (the L1 norm of the change in this iteration), ``staleness`` (by how many
    versions the oldest model that a slot learned from lagged), and the model, for ``model_of``.

    Guarantee: a loss moves the model by at most θ, and learning goes on from there (AF-Stream 2019,
    theorem 1: it converges to the same optimum).

    Args:
        features: As for ``LocalModel``.
    """

    output = (
        "version bigint, steps bigint, tuples bigint, skipped bigint, prediction_rate double, "
        "log_loss double, l1_change double, staleness bigint, cells binary, changes binary"
    )
    feedback = "version bigint, steps bigint, cells binary, changes binary"

    def __init__(self, features: Features) -> None:
        self._features = features

    def parameters(self) -> Mapping[str, object]:
        """What gives the weights their meaning."""
        return {"features": self._features.columns(), "size": self._features.size}

    def setup(self, state: SlotState) -> None:
        """The global weights, the clock, and the sums of this epoch's reports."""
        size = self._features.size
        self._weights = state.vector("weights", size, divergence="l2")
        self._clock = Clock(state)
        self._sum = state.vector("sum", size, divergence="max", weights=_NOT_COUNTED)
        self._counts = state.vector("counts", 4, divergence="max", weights=_NOT_COUNTED)
        # The version of the model, and the elder ones that this epoch's reports are based on.
        self._versions = state.vector("versions", 2, divergence="max", weights=_NOT_COUNTED)

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add reports up, each weighted with its rows."""
        del out
        for report in batch.to_pylist():  # one row a slot
            cells = np.frombuffer(report["cells"], "<i4")
            changes = np.frombuffer(report["changes"], "<f8")
            self._sum.add(cells, changes * report["tuples"], unique=True)
            self._clock.at_least(report["steps"])
            self._versions.maximum([_NOW], [report["model"]])
            if report["model"] != _UNKNOWN:  # a slot that was lost has no lag, but a loss
                self._versions.maximum([_LAG], [self._versions.values[_NOW] - report["model"]])
            self._counts.add(
                None, [report[name] for name in ("tuples", "correct", "loss", "skipped")]
            )

    def on_epoch_end(self, out: Output) -> None:
        """Move the model by the mean, and feed it back."""
        counts = self._counts.values.copy()
        tuples = int(counts[TUPLES])
        if not tuples and not counts[SKIPPED]:
            return
        moved = np.flatnonzero(self._sum.values)
        change = self._sum.values[moved] / max(tuples, 1)
        self._weights.add(moved, change, unique=True)
        self._sum.put(moved, 0.0, unique=True)
        self._counts.clear()
        version, lag = int(self._versions.values[_NOW]) + 1, int(self._versions.values[_LAG])
        self._versions.put(None, [version, 0])
        cells, weights = packed(self._weights.values)
        model = {
            "version": [version],
            "steps": [self._clock.steps],
            "cells": [cells],
            "changes": [weights],
        }
        out.feedback(model)
        out.emit(
            {
                **model,
                "tuples": [tuples],
                "skipped": [int(counts[SKIPPED])],
                "prediction_rate": [counts[CORRECT] / tuples if tuples else None],
                "log_loss": [counts[LOSS] / tuples if tuples else None],
                "l1_change": [float(np.abs(change).sum())],
                "staleness": [lag],
            }
        )

    def on_recover(self, loss: Loss) -> None:
        """Go on from the backup's weights; reports of half an epoch are sent again with it."""
        del loss
        self._sum.clear()
        self._counts.clear()


class Predict(Operator):
    """Add the ``probability`` of label 1 to every row, by a model that feedback may renew.

    Null where a row's features cannot be used. For a fixed model on a whole DataFrame see
    ``predict``.

    Args:
        model: The model to begin with.
    """

    def __init__(self, model: LogisticModel) -> None:
        self._model = model

    def bind(self, schema: StructType, key: list[str]) -> None:
        """The rows as they are, and the probability."""
        del key
        check_features(self._model.features, schema, None)
        self.output = _with_probability(schema)

    def setup(self, state: SlotState) -> None:
        """The weights as changes to the first model."""
        size = self._model.features.size
        self._changes = state.vector("changes", size, divergence="l2")

    def on_feedback(self, items: pa.RecordBatch, out: Output) -> None:
        """Predict with the newest model from here on."""
        del out
        newest = items.slice(items.num_rows - 1, 1).to_pylist()[0]
        learned = unpacked(newest["cells"], newest["changes"], self._model.features.size)
        _put_changes(self._changes, learned - self._model.weights)

    def amplification(self, before: Operator) -> float:
        """What is wrong in ``GlobalModel``, as it is: 1. Its newest model replaces the last one."""
        return 1.0 if isinstance(before, GlobalModel) else math.inf

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Predict."""
        weights = self._model.weights + self._changes.values
        out.emit(_predicted(LogisticModel(self._model.features, weights), batch))


def predict(rows: DataFrame, model: LogisticModel) -> DataFrame:
    """A DataFrame's rows with the ``probability`` of label 1; streaming or static.

    Args:
        rows: Any DataFrame with the model's features.
        model: What ``model_of`` gave, or a model learned at hand.
    """
    check_features(model.features, rows.schema, None)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _predicted(model, batch)

    return rows.mapInArrow(task, _with_probability(rows.schema))


def model_of(features: Features, row: Any) -> LogisticModel:
    """The model in a row that ``GlobalModel`` emitted: a Spark ``Row``, or a mapping."""
    weights = unpacked(row["cells"], row["changes"], features.size)
    return LogisticModel(features, weights, steps=int(row["steps"]))


class Clock:
    """The number of mini-batches so far, kept as its logarithm.

    The learning rate goes by t^-½. An error of θ in log2 t changes it by a factor of 2^(θ/2), early
    and late alike; and it takes ever longer to drift by θ, so the clock costs few backups.
    """

    def __init__(self, state: SlotState) -> None:
        self._log = state.vector("clock", 1, divergence="max")

    @property
    def steps(self) -> int:
        """Mini-batches so far."""
        log = float(self._log.values[0])
        steps: int = round(2.0**log) - 1
        return steps

    def at_least(self, steps: int) -> None:
        """Set the clock forward, never back."""
        self._log.maximum([0], [math.log2(steps + 1)])


def packed(values: Floats) -> tuple[bytes, bytes]:
    """Places and values of what is not 0."""
    places = np.flatnonzero(values)
    return places.astype("<i4").tobytes(), values[places].astype("<f8").tobytes()


def unpacked(cells: bytes, values: bytes, size: int) -> Floats:
    """The whole vector again."""
    result = np.zeros(size)
    result[np.frombuffer(cells, "<i4")] = np.frombuffer(values, "<f8")
    return result


def check_features(features: Features, schema: StructType, label: str | None) -> None:
    """Refuse an input whose columns the model cannot use.

    Raises:
        BadValueError: A column is missing, or of a wrong type.
    """
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - workers need it never

    wanted = [*features.columns(), *([label] if label else [])]
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        raise BadValueError(
            f"The columns {missing} are not in the input.",
            why=f"The input has the columns {schema.names}.",
        )
    types = {name: to_arrow_type(schema[name].dataType, timezone="UTC") for name in wanted}
    features.check(types)
    if label is None:
        return
    kind = types[label]
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise BadValueError(
            f"The label {label!r} of type {kind} is neither 0 or 1 nor a flag.",
            do="Cast it to int first.",
        )


def _put_changes(vector: Any, values: Floats) -> None:
    changed = np.flatnonzero(vector.values != values)
    if len(changed):
        vector.put(changed, values[changed], unique=True)


def _with_probability(schema: StructType) -> StructType:
    from pyspark.sql.types import DoubleType, StructField, StructType  # noqa: PLC0415

    return StructType([*schema.fields, StructField("probability", DoubleType())])


def _predicted(model: LogisticModel, batch: pa.RecordBatch) -> pa.RecordBatch:
    column = pa.array(model.probability(batch), from_pandas=True)  # NaN becomes null
    return batch.append_column("probability", column)
