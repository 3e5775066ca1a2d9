"""The user's class: an operator, written once and run as many slots.

AF-Stream's user-defined interfaces (2019, §3.3 and appendix C), in Python's habits.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tether.state.norms import DURABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from tether.output import Output
    from tether.state.slot import SlotState


__all__ = ["DURABLE", "EndedWindow", "Loss", "Operator"]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a slot lost when its resident state went away, told to ``Operator.on_recover``.

    Attributes:
        slot: Which parallel copy of the operator.
        epoch: The epoch that the slot is about to run, with the backup's state.
        backup_epoch: The newest epoch in that backup; -1 where there was none.
        failures: k, the losses of this slot so far, this one included.
        bound: Most divergence that the loss can have cost, in units of the divergence:
            the threshold θ in force at the failure, plus what unreadable backups add.
        theta: θ from now on.
    """

    slot: int
    epoch: int
    backup_epoch: int
    failures: int
    bound: float
    theta: float


@dataclass(frozen=True, kw_only=True)
class EndedWindow:
    """A hopping window that is complete: [start, end) in its unit.

    Attributes:
        start: First position in it.
        end: First position after it.
        by: "seconds" of event time since 1970, "items" (rows of the slot) or "epochs".
    """

    start: float
    end: float
    by: str


class Operator:
    """State that stays where it is between epochs, and the code that updates it.

    Subclass it, name the rows that it emits in ``output``, declare state in ``setup`` and update it in
    ``process``, a whole Arrow batch at a time. One instance serves one slot in one process; keep
    nothing in ``self`` but parameters and the primitives made in ``setup``, for processes come and
    go and only the declared state comes back.

    Guarantee: the rows of an epoch change the state exactly once, however often Spark runs the
    task; an exception rolls the slot back to the end of the epoch before.

    Example:
        >>> import pyarrow as pa
        >>> class Largest(Operator):
        ...     output = "user string, largest double"
        ...     def setup(self, state):
        ...         self.seen = state.table(
        ...             "seen", {"user": pa.string()}, {"largest": "float64"}, starts={"largest": 0.0}
        ...         )
        ...     def process(self, batch, out):
        ...         self.seen.maximum(batch.select(["user"]), largest=batch["amount"])
        ...     def on_epoch_end(self, out):
        ...         out.emit(self.seen.rows_to_batch(self.seen.changed()))
        >>> Largest().name
        'largest'
    """

    output: str | StructType
    """Schema of the emitted rows, as Spark takes it."""

    feedback: str | StructType | None = None
    """Schema of the items that it sends against the stream with ``out.feedback``, if any."""

    fan_out: float = 1.0
    """β: most output items that one input item can cause: so many are missing for one that was lost.
    How much an *error* grows is another matter: see ``growth`` and ``amplification``."""

    growth: float = 1.0
    """Most that one unit of error in this operator's state can come to in it through later rows. 1: the
    same rows never take two states further apart. So it is wherever what is added, put, or compared
    with ``maximum`` or ``minimum`` depends on the rows alone; not where a change depends on the state
    itself (``x = 2 * x + row``; a branch on a count). ``math.inf``: not known; then Θ bounds what
    losses take out of the state, and nothing is promised for what becomes of it."""

    sends_losses: bool = True
    """Whether what this operator loses can show in the rows, or the feedback, that it sends. False is a
    promise: they are its input rows, or made of one epoch's rows alone. Then its losses harm no other
    operator, whatever that does, and whatever DataFrame code lies between; errors that came to it from
    operators before may still go on."""

    repeats: bool = False
    """Promise that the same rows of an epoch always lead to the same state, whatever their order and
    batches; and that the output then has the same effect on the next operator's state (for example,
    counts that add up to the same, however they are split). If all operators of a query promise it,
    a loss under barrier snapshots takes back only the slots that must go back, not all of them."""

    joins: bool = False
    """Whether it joins its input streams: without the rows of one, those of the others give no output
    (PPA 2016 §III-A: correlated input). Only planning of copies asks; see ``tether.planning``."""

    disjoint: bool = False
    """Promise that no entry of the state is ever touched by rows of two different keys (those given to
    ``apply``): true where the key's columns are part of every table's own key. Then no two slots
    share an entry, and under the ``max`` divergence each slot may use the whole budget. Without it the
    errors of slots add up, which is always safe."""

    version: ClassVar[int] = 1
    """Raise it when the meaning of the state changes: an older backup is then refused."""

    @property
    def name(self) -> str:
        """The operator's name in stories, backups and errors."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Learn the input's schema and the key: called once, before anything else.

        The place to settle what depends on them: ``output``, and the types that ``setup`` needs.
        """

    def parameters(self) -> Mapping[str, object]:
        """Settings that give the stored state its meaning; part of the backup's fingerprint."""
        return {}

    def amplification(self, before: Operator) -> float:
        """Most error that one unit of error in ``before`` can bring into this operator.

        A Lipschitz factor, in units of both divergences, for ever: if ``before`` is wrong by ε at most,
        at whatever times, in its state and in the rows (or the feedback) that it sends, then this
        operator's state, and what it sends on, is never wrong by more than factor · ε through them. It
        is declared as if this operator had one slot. In several, what is wrong may be in each of them:
        then it counts as often as there are slots, unless they are ``disjoint``.

        - 0: whatever is wrong there, nothing of it matters here. That what ``before`` has *lost* does
          not matter is less: see ``sends_losses`` and ``amplification_of_losses``.
        - 1: the newest value of each key is put into a table of the same divergence, for example.
        - ``math.inf``, the default: not known, or without limit. To *add* running totals is that:
          after one loss each total that comes is too small, and every one of them is added.

        It is asked once for each operator whose rows come straight, or in a ``union``, to this one, and
        for one that sends it feedback. ``apply(…, amplification=…)`` overrides it, and is what to use
        where DataFrame code lies between, which may enlarge an error itself. Columns weighed
        ``DURABLE`` do not count. ``tether.testing.check_pipeline`` tries it.

        Example:
            >>> import pyarrow as pa
            >>> class Newest(Operator):
            ...     def setup(self, state):
            ...         self.seen = state.table("seen", {"user": pa.string()}, {"largest": "float64"})
            ...     def process(self, batch, out):
            ...         self.seen.put(batch.select(["user"]), largest=batch["largest"])
            ...     def amplification(self, before):
            ...         return 1.0 if isinstance(before, Largest) else math.inf
            >>> class Largest(Operator):
            ...     "As above: it sends the newest value of each user that has changed."
            >>> Newest().amplification(Largest())
            1.0
        """
        del before
        return math.inf

    def amplification_of_losses(self, before: Operator) -> float:
        """As ``amplification``, for what ``before`` has lost itself; not for errors that came to it.

        To be overridden where that is less: where rows that come once more after a loss are known by
        their number, for example. They would not be known if the rows that ``before`` gets were wrong.
        """
        return self.amplification(before) if before.sends_losses else 0.0

    def combine(self) -> list[Column] | None:
        """Aggregates by which Spark folds an epoch's rows per key before they reach the slot.

        ``None`` (the default) sends the rows as they are.
        """
        return None

    def setup(self, state: SlotState) -> None:
        """Declare the state: called whenever a process attaches to a slot, and once at start."""

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Take in a batch of rows of this slot's keys."""
        raise NotImplementedError(f"{type(self).__name__} must define process(batch, out)")

    def on_feedback(self, items: pa.RecordBatch, out: Output) -> None:
        """Take in the newest feedback items of the operator that sends them here.

        Called in every slot before the epoch's rows, with the items of the newest epoch that the
        sender has finished; items of one epoch come once, unless the epoch is run again.
        """

    def on_epoch_end(self, out: Output) -> None:
        """All rows of the epoch are in; the usual place to emit."""

    def on_window_end(self, window: EndedWindow, out: Output) -> None:
        """A hopping window is complete: emit its answer, and clear what belonged to it.

        Called after ``on_epoch_end``. By epochs the end is exact; by items it is the end of the epoch
        in which the slot's row count passed it; by event time it is the end of the epoch after the one
        whose rows moved the watermark past it, so rows of later windows may be in the state too.
        """

    def on_recover(self, loss: Loss) -> None:
        """The state was lost and is now the backup's: compensate here, if the algorithm can."""
