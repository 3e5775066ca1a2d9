"""An export that is written in the background, while the state goes on changing.

A write may take longer than an epoch. AF-Stream 2019 §3.4.1 issues it and goes on; what makes that
safe is that the copy in memory of what is durable (here: each primitive's durable values) changes
only when the write is known to be durable. Which export that is, is recorded in the arena: the
process that began it may be gone by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.errors import BadValueError
from tether.state.divergence import sum_up
from tether.state.header import EPOCH, PENDING, PENDING_EPOCH, PHASE, TOKENS, Phase
from tether.state.sharing import export_shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.state.primitive import Export, Primitive


class PendingExport:
    """Entries taken out by ``SlotState.begin_export``, not durable yet.

    Guarantee: until ``settle`` the state's divergence is the distance to the backups *without* these
    entries; after it, to the backups with them, as they were when they were taken out. A
    recovery must use them from the epoch that settles them on, and not before. Rolling back an epoch
    also takes back its begin, settle or abandon.

    Example:
        >>> from tether.state import SlotState
        >>> state = SlotState.heap()
        >>> weights = state.vector("weights", 3)
        >>> state.begin(0)
        >>> weights.assign([8.0, 1.0, 0.0])
        >>> writing = state.begin_export(target=2.0)
        >>> writing.exports["weights"].batches[0].to_pydict()["value"]
        [8.0]
        >>> weights.add([0], 3.0)
        >>> round(state.divergence(), 6), state.commit(0)
        (12.0, None)
        >>> state.begin(1)
        >>> state.pending.settle()
        >>> round(state.divergence(), 6)
        4.0
    """

    def __init__(
        self,
        words: Any,
        primitives: Mapping[str, Primitive],
        token: int,
        exports: dict[str, Export] | None,
    ) -> None:
        self._words, self._primitives = words, primitives
        self.token = token
        """Number of the export, never used twice for a slot."""
        self.epoch = int(words[PENDING_EPOCH])
        """The epoch in which it was begun."""
        self._exports = exports

    @classmethod
    def begin(
        cls, words: Any, primitives: Mapping[str, Primitive], target: float
    ) -> PendingExport | None:
        """Take the entries out and record that they are being written."""
        if words[PENDING]:
            raise BadValueError(
                "No further export can be begun now.",
                why=f"The one of epoch {words[PENDING_EPOCH]} is still being written.",
                do="Settle or abandon it first.",
            )
        exports = export_shared(
            primitives.values(), target, lambda primitive, share: primitive.begin_export(share)
        )
        if not exports:
            return None
        words[TOKENS] += 1
        words[PENDING_EPOCH] = words[EPOCH]
        words[PENDING] = words[TOKENS]
        return cls(words, primitives, int(words[PENDING]), exports)

    @classmethod
    def found(cls, words: Any, primitives: Mapping[str, Primitive]) -> PendingExport | None:
        """The one that the arena says is being written."""
        token = int(words[PENDING])
        return cls(words, primitives, token, None) if token else None

    @property
    def exports(self) -> dict[str, Export]:
        """The exports to write, by the name of the primitive.

        Raises:
            BadValueError: It was begun by another process, or found again: only it has the entries.
        """
        if self._exports is None:
            raise BadValueError(
                "The entries of this export are not here.",
                why="The arena keeps what is needed to settle it, not its batches.",
                do="Use the object that begin_export gave, or abandon the export.",
            )
        return self._exports

    @property
    def divergence_after(self) -> float:
        """The divergence that would be left if nothing had changed since."""
        return sum_up(
            self.exports[name].divergence_after
            if name in self.exports
            else p.divergence(exact=True)
            for name, p in self._primitives.items()
        )

    def settle(self) -> None:
        """It is durable now: the divergence falls by what it holds. Within an epoch.

        Raises:
            BadValueError: It is no longer pending, or no epoch is being applied.
        """
        self._expect()
        for primitive in self._primitives.values():
            primitive.settle_export()
        self._words[PENDING] = 0

    def abandon(self) -> None:
        """It will never be durable: as if it had not been begun. Within an epoch.

        Raises:
            BadValueError: It is no longer pending, or no epoch is being applied.
        """
        self._expect()
        for primitive in self._primitives.values():
            primitive.abandon_export()
        self._words[PENDING] = 0

    def _expect(self) -> None:
        if self._words[PENDING] != self.token or self._words[PHASE] != Phase.APPLYING:
            raise BadValueError(
                f"The export {self.token} cannot be settled or abandoned now.",
                why="That is done once, within an epoch; and a rollback takes an export back that was "
                "begun in the epoch.",
                do="Look at state.pending after begin(epoch).",
            )
