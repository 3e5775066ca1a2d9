"""The class that users write: an operator, written once and run as many slots.

These are AF-Stream's user-defined interfaces (2019, §3.3 and appendix C), as Python classes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

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
    """What a slot lost with its resident state; given to ``Operator.on_recover``.

    Attributes:
        slot: Which parallel copy of the operator.
        epoch: The epoch that the slot runs next, on the state from the backup.
        backup_epoch: The newest epoch in that backup; -1 where there was none.
        failures: k: how many losses this slot has had, including this one.
        bound: The most that this loss can have cost, in units of the divergence: the threshold θ that
            was in force, plus what unreadable backups add.
        theta: The threshold θ from now on.
    """

    slot: int
    epoch: int
    backup_epoch: int
    failures: int
    bound: float
    theta: float


@dataclass(frozen=True, kw_only=True)
class EndedWindow:
    """A hopping window that is complete: from ``start`` to before ``end``.

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

    Subclass it. Give the schema of its output rows in ``output``, declare the state in ``setup``, and
    update the state in ``process``, one Arrow batch at a time. One instance works for one slot in one
    process. Keep only parameters, and what ``setup`` declares, in ``self``: processes may be replaced at
    any time, and only the declared state is kept.

    Guarantee: the rows of an epoch change the state exactly once, even if Spark runs the task several
    times. An exception rolls the slot back to the end of the previous epoch.

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
    """Schema of the rows that it emits: a Spark DDL string or a ``StructType``."""

    feedback: str | StructType | None = None
    """Schema of the items that it sends to an earlier operator with ``out.feedback``, if any."""

    fan_out: float = 1.0
    """β: the most output items that one input item can cause. If one input item is lost, at most β
    output items are missing. For how an *error* grows, see ``growth`` and ``amplification``."""

    growth: float = 1.0
    """The most that one unit of error in this operator's state can grow to through later rows.

    1 means: the same rows never increase the distance between two states. This is true if what is added,
    put, or compared with ``maximum`` or ``minimum`` depends only on the rows. It is not true if a change
    depends on the state itself (``x = 2 * x + row``, or a branch on a count). ``math.inf`` means: not
    known. Then Θ still bounds what losses take out of the state, but not how that error grows."""

    sends_losses: bool = True
    """Whether a loss of this operator's state can change the rows, or the feedback, that it sends.

    ``False`` is a promise: what it sends is its input rows, or is computed from the rows of one epoch
    only. Then its losses cannot make another operator wrong, whatever that operator or DataFrame code
    between them does. Errors in its *input* can still pass through it."""

    repeats: bool = False
    """A promise: the same rows of an epoch always give the same state, in any order and in any batches.
    The output may then be split differently, but it has the same effect on the next operator's state
    (for example, counts with the same sum). If all operators of a query promise this, a loss under
    barrier snapshots rewinds only the slots that must be rewound, not all of them."""

    merges: bool = False
    """Promise that the rows of several epochs lead to the same state when they come as one epoch. (What
    is emitted may differ: it is not looked at.) Not so where an epoch's end changes the state, or where
    sums of broken numbers depend on the order. Then a twin reads epochs whose output nobody needs any
    more all at once, and catches up sooner; see ``docs/tentative.md``."""

    joins: bool = False
    """Whether it joins its input streams: rows of one stream give no output without rows of the others
    (PPA 2016 §III-A: correlated input). Used only to plan copies; see ``tether.planning``."""

    disjoint: bool = False
    """A promise: rows with different keys (the keys given to ``apply``) never change the same entry of
    the state. This is true if the key's columns are part of the key of every table. Then no two slots
    share an entry, and under the ``max`` divergence each slot can use the whole budget. Without the
    promise the errors of all slots are added, which is always safe."""

    overlapping: bool = False
    """A promise: ``on_window_end`` forgets nothing that a later window of ``Hopping(length, every=…)``
    still needs. Without it such windows are refused, for most operators clear their state there."""

    alike: ClassVar[Mapping[str, Literal["max", "min"]]] = MappingProxyType({})
    """Numbers that are the same in every slot, or may be: when the number of slots changes, each slot
    gets the largest, or smallest, of all slots' values. They must weigh ``DURABLE`` or nothing. Without
    it a ``Number`` of a keyed operator stands in the way of such a change; see docs/rescaling.md."""

    version: ClassVar[int] = 1
    """Increase it when the meaning of the state changes: older backups are then refused."""

    @property
    def name(self) -> str:
        """The operator's name in stories, backups and errors."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def bind(self, schema: StructType, key: list[str]) -> None:
        """Called once, before anything else, with the schema of the input and the key columns.

        Set here what depends on them: ``output``, and the types that ``setup`` needs.
        """

    def parameters(self) -> Mapping[str, object]:
        """Settings that the meaning of the stored state depends on.

        They are part of the backup's fingerprint: if they change, the backup is refused.
        """
        return {}

    def amplification(self, before: Operator) -> float:
        """The most error that one unit of error in ``before`` can cause in this operator.

        It is a Lipschitz factor, in the units of both divergences. If the state of ``before``, and the
        rows or feedback that it sends, are never wrong by more than ε, then this operator's state and
        output are never wrong by more than factor · ε because of that. Declare it for one slot. With
        several slots, each of them may receive the error, so Tether multiplies the factor by the number
        of slots, unless the operator is ``disjoint``.

        - 0: errors in ``before`` never matter here. If only its *losses* do not matter, see
          ``sends_losses`` and ``amplification_of_losses``.
        - 1: for example, the newest value of each key is put into a table with the same divergence.
        - ``math.inf``, the default: not known, or without limit. Adding up running totals has no limit:
          after one loss every later total is too small, and each of them is added.

        Tether calls it once for each operator that sends rows to this one, directly or through a
        ``union``, and for each one that sends it feedback. ``apply(…, amplification=…)`` overrides it.
        Use that if DataFrame code is between the two, because such code can increase an error itself.
        Columns with the weight ``DURABLE`` do not count. ``tether.testing.check_pipeline`` tests it.

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
            ...     "As above: it sends the newest value of each user whose value has changed."
            >>> Newest().amplification(Largest())
            1.0
        """
        del before
        return math.inf

    def amplification_of_losses(self, before: Operator) -> float:
        """Like ``amplification``, but only for the losses of ``before``, not for errors in its input.

        Override it if this factor is smaller. For example, if rows that are sent again after a loss are
        recognised by their number. (They would not be recognised if the input of ``before`` were wrong.)
        """
        return self.amplification(before) if before.sends_losses else 0.0

    def combine(self) -> list[Column] | None:
        """Aggregates with which Spark combines an epoch's rows of each key before the slot gets them.

        ``None`` (the default): the slot gets the rows as they are.
        """
        return None

    def setup(self, state: SlotState) -> None:
        """Declare the state. Called whenever a process attaches to a slot, and once at the start."""

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Update the state with a batch of rows; all of them have keys of this slot."""
        raise NotImplementedError(f"{type(self).__name__} must define process(batch, out)")

    def on_feedback(self, items: pa.RecordBatch, out: Output) -> None:
        """Update the state with feedback items, which another operator sends to this one.

        Called in every slot, before the rows of the epoch, with the items of the newest epoch that the
        sender has finished. The items of an epoch come once, unless the epoch is run again.
        """

    def on_epoch_end(self, out: Output) -> None:
        """Called after all rows of the epoch; the usual place to emit rows."""

    def on_window_end(self, window: EndedWindow, out: Output) -> None:
        """A hopping window is complete: emit its result, and clear its state.

        Called after ``on_epoch_end``. A window by epochs ends exactly. A window by items ends with the
        epoch in which the slot's row count passes its end. A window by event time ends one epoch after
        the epoch whose rows move the watermark past its end; so the state may already contain rows of
        later windows.
        """

    def on_recover(self, loss: Loss) -> None:
        """The state was lost, and has been restored from the backup. Compensate here if you can."""
