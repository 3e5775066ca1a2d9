"""A conformance check for several operators: whether what they declare of errors is true."""

from __future__ import annotations

import copy
import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tether.core.errors import BadValueError
from tether.policies.approximate import Approximate
from tether.testing import laws
from tether.testing.laws import broken
from tether.testing.local import LocalPipeline
from tether.testing.oracle import Content, apart, between, content

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from tether.core.bound import OperatorBound
    from tether.state.primitive import Primitive
    from tether.testing.local import Stage

_ROUNDING = 1e-9


def check_pipeline(
    stages: Sequence[Stage],
    epochs: Sequence[pa.Table | Mapping[str, pa.Table]],
    *,
    tolerance: Approximate,
    seed: int = 0,
    schedules: int = 10,
) -> float:
    """Try whether the states of a pipeline stay within what ``bound()`` says, without Spark.

    The pipeline runs twice, side by side: once without losses, and once with slots lost at random
    between epochs, of one operator alone or of several. After every epoch every operator's two states
    are compared by brute force, and must not be further apart than the bound says: so ``growth``,
    ``amplification`` and ``disjoint`` are tried, in chains, diamonds and loops. Where a factor is
    infinite nothing is promised, and nothing is tried. What operators send to a sink is not compared.

    Args:
        stages: The pipeline; it is copied, and not used itself.
        epochs: Rows of each epoch, as for ``LocalPipeline.run``.
        tolerance: The policy of stages without one of their own; a window by epochs, if any. Where
            Θ is so small that nothing is ever lost, nothing is tried, and that is an error.
        seed: Of the first schedule; each further one has the next.
        schedules: Number of schedules.

    Returns:
        The largest part of a bound that was used up: an error of 1 means that a factor could not be
        smaller, a small one that it might.

    Raises:
        LawBrokenError: Which operator was further off than it should be, and with which seed.
        BadValueError: Nothing was ever lost.

    Example:
        >>> import pyarrow as pa
        >>> from tether import Approximate, Operator
        >>> from tether.testing.local import Stage
        >>> class Totals(Operator):
        ...     output = "k bigint, n bigint"
        ...     def setup(self, state):
        ...         self.sums = state.table("sums", {"k": pa.int64()}, {"n": "int64"})
        ...     def process(self, batch, out):
        ...         self.sums.add(batch.select(["k"]), n=batch["n"])
        ...     def on_epoch_end(self, out):
        ...         out.emit(self.sums.rows_to_batch(self.sums.changed()))
        >>> class Newest(Totals):
        ...     def process(self, batch, out):
        ...         self.sums.put(batch.select(["k"]), n=batch["n"])
        ...     def amplification(self, before):
        ...         return 1.0
        >>> rows = [pa.table({"k": [1, 2, 3], "n": [epoch, 4, 5]}) for epoch in range(8)]
        >>> used = check_pipeline([Stage(Totals()), Stage(Newest())], rows, tolerance=Approximate(40))
        >>> class Again(Newest):
        ...     "Adds totals to totals: after a loss it is wrong by more with every epoch."
        ...     process = Totals.process
        >>> check_pipeline([Stage(Totals()), Stage(Again())], rows, tolerance=Approximate(40))
        ... # doctest: +ELLIPSIS
        Traceback (most recent call last):
        tether.testing.laws.LawBrokenError: Operator 'again' broke a law (seed ...): no state is ...
    """
    runs = [
        _Run(stages, tolerance, number).through(epochs) for number in range(seed, seed + schedules)
    ]
    if not any(lost for _, lost in runs):
        raise BadValueError(
            f"With max_state_error={tolerance.max_state_error:g} no state was ever lost.",
            why="All changes were backed up, or no operator keeps any state that counts.",
            do="Give a larger max_state_error, or more epochs.",
        )
    return max(used for used, _ in runs)


class _Run:
    """One schedule of losses."""

    def __init__(self, stages: Sequence[Stage], tolerance: Approximate, seed: int) -> None:
        self._draw, self._seed = random.Random(seed), seed  # noqa: S311 - to be repeated
        self._lossy = LocalPipeline(copy.deepcopy(stages), tolerance=tolerance)
        # The same windows, and no backups: they would cost time and change nothing.
        without = [replace(stage, policy=None) for stage in copy.deepcopy(stages)]
        never = Approximate(math.inf, window=tolerance.window)
        self._clean = LocalPipeline(without, tolerance=never)
        self._used = 0.0

    def through(self, epochs: Sequence[pa.Table | Mapping[str, pa.Table]]) -> tuple[float, bool]:
        """Run all epochs; the largest part of a bound that was used, and whether anything was lost."""
        names = list(self._lossy.stages)
        victims = [self._draw.choice(names)] if self._draw.random() < 0.6 else names
        for epoch, rows in enumerate(epochs):
            for name in victims:
                for slot in self._lossy.stages[name].slots:
                    if self._draw.random() < 0.2:
                        self._lossy.lose(name, slot.number)
            self._clean.run(rows)
            self._lossy.run(rows)
            for told in self._lossy.bound().operators:
                self._compare(told, epoch)
        failures = sum(slot.failures for name in names for slot in self._lossy.stages[name].slots)
        return self._used, failures > 0

    def _compare(self, told: OperatorBound, epoch: int) -> None:
        if told.spent == math.inf:
            return
        clean, lossy = (run.stages[told.operator] for run in (self._clean, self._lossy))
        error = operator_error(clean, lossy)
        if told.spent:
            self._used = max(self._used, error / told.spent)
        if error > told.spent + _ROUNDING * max(told.spent, _size(clean)):
            raise broken(
                f"Operator {told.operator!r}",
                laws.SPREAD,
                self._seed,
                f"After epoch {epoch} its state is wrong by {error}. By what was lost it could be by "
                f"{told.spent}: {self._losses()}.",
            )

    def _losses(self) -> str:
        return ", ".join(
            f"{one.operator} lost {one.own_spent:g} at most"
            for one in self._lossy.bound().operators
        )


def operator_error(one: Stage, other: Stage) -> float:
    """How far two runs of an operator are apart: the sum over its slots.

    With disjoint slots under ``max`` it is the worst entry of all slots' tables, put together; there
    an entry that two slots share after all shows as the sum of both.
    """
    slots = list(zip(one.slots, other.slots, strict=True))
    specs = one.slots[0].state.specs()
    if other.slots[0].placement.errors_of_copies == "max":
        return max(
            between(
                spec,
                _united([mine.state[name] for mine, _ in slots]),
                _united([theirs.state[name] for _, theirs in slots]),
            )
            for name, spec in specs.items()
        )
    return math.fsum(
        apart(mine.state[name], theirs.state[name]) for mine, theirs in slots for name in specs
    )


def _united(primitives: Sequence[Primitive]) -> Content:
    united: Content = {}
    for primitive in primitives:
        for key, row in content(primitive).items():
            sums = united.setdefault(key, dict.fromkeys(row, 0))
            united[key] = {name: sums[name] + value for name, value in row.items()}
    return united


def _size(stage: Stage) -> float:
    """How large its values are: what sums of floats are rounded by."""
    return math.fsum(
        abs(value)
        for slot in stage.slots
        for name, spec in slot.state.specs().items()
        if spec["kind"] != "object"
        for row in content(slot.state[name]).values()
        for value in row.values()
        if math.isfinite(value)
    )
