"""Runs of online learning with failures, iteration by iteration, in one process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import tether
from tether.algorithms.features import DenseFeatures
from tether.algorithms.logistic_model import Descent
from tether.algorithms.logistic_regression import GlobalModel, LocalModel, model_of
from tether.data import dense_examples
from tether.testing.local import LocalPipeline, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

WORKERS = 11
"""Local models, as in the paper."""

RATE = 3.0
"""Learning rate: large enough that the model comes near its optimum within the run. With one that is
too small, stale models would learn *faster*: their gradients are larger."""


@dataclass(frozen=True)
class Trace:
    """A stream to learn from, one table an iteration, and rows to test with."""

    name: str
    features: DenseFeatures
    iterations: list[pa.Table]
    test: pa.RecordBatch


@dataclass(frozen=True)
class Run:
    """What each iteration showed."""

    l1_change: list[float]
    test_loss: list[float]
    staleness: list[int]
    backups: int
    seconds: float

    @property
    def smoothed(self) -> np.ndarray:
        """The L1 norm of the change, as the mean of five iterations: single ones jump."""
        return np.convolve(self.l1_change, np.ones(5) / 5, mode="valid")

    def iterations_to(self, norm: float) -> int:
        """Iterations until the smoothed norm is at most this for good; one too many if never."""
        above = np.flatnonzero(self.smoothed > norm)
        return (int(above[-1]) + 1 if len(above) else 0) + 5

    def iterations_to_loss(self, loss: float) -> int:
        """Iterations until the test loss is at most this for good; one too many if never."""
        above = np.flatnonzero(np.array(self.test_loss) > loss)
        return int(above[-1]) + 2 if len(above) else 1


def generated(iterations: int, rows: int, seed: int) -> Trace:
    """28 features, as HIGGS has; labels of a true model with noise."""
    *tables, test = dense_examples(iterations + 1, rows, seed=seed)
    features = DenseFeatures([f"x{number}" for number in range(28)])
    return Trace("generated", features, tables, test.to_batches()[0])


def learn(
    trace: Trace,
    *,
    budget: float | None,
    failures: int = 0,
    lost_items: int = 0,
    everything: bool = False,
    staleness: int | Callable[[int], int] = 0,
) -> Run:
    """Learn with failures.

    Args:
        trace: What to learn from.
        budget: Θ; None: no fault tolerance.
        failures: With ``everything`` False: the number of local workers that die at once, after a
            tenth of the stream, as in the paper. True: how often all slots lose their memory.
        lost_items: L: rows that a source that cannot replay would lose, dropped here by hand, half
            of them with the first failure and half of the rest with each later one.
        everything: See ``failures``.
        staleness: As for ``LocalPipeline``.
    """
    local = LocalModel(trace.features, descent=Descent(rate=RATE, batch_size=50), report_every=1)
    pipeline = LocalPipeline(
        [
            Stage(local, parallelism=WORKERS),
            Stage(GlobalModel(trace.features), feedback_to=local.name),
        ],
        tolerance=tether.NoTolerance() if budget is None else tether.Approximate(budget),
        staleness=staleness,
    )
    schedule = _schedule(len(trace.iterations), failures, everything)
    changes, losses, lags = [], [], []
    began = time.perf_counter()
    testing, dropping = 0.0, lost_items / 2
    for number, rows in enumerate(trace.iterations):
        for victim in schedule.get(number, []):
            if victim is None:
                pipeline.lose_all()
            else:
                pipeline.lose(local.name, victim)
            rows = rows.slice(int(dropping))  # noqa: PLW2901 - what the failure took from it
            dropping /= 2
        answer: dict[str, Any] = pipeline.run(rows).to_pylist()[-1]
        paused = time.perf_counter()
        changes.append(answer["l1_change"])
        lags.append(answer["staleness"])
        losses.append(model_of(trace.features, answer).log_loss(trace.test, "label"))
        testing += time.perf_counter() - paused
    seconds = time.perf_counter() - began - testing
    return Run(changes, losses, lags, pipeline.backups(), seconds)


def _schedule(iterations: int, failures: int, everything: bool) -> dict[int, list[int | None]]:
    if not failures:
        return {}
    if everything:
        at = np.linspace(0, iterations, failures + 2)[1:-1].astype(int)
        return {int(number): [None] for number in at}
    return {iterations // 10: list(range(failures))}
