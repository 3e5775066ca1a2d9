"""A run that goes ahead of the query, on input of which something is missing (DPC 2005, UP_FAILURE).

Nothing that it does is committed, so it keeps no account of losses. It begins from the query's state as
of its last epoch, and is dropped when the query has caught up; see :mod:`tether.engine.slot.ahead`.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from tether.core.ids import epoch_after
from tether.engine.messages import Ahead

if TYPE_CHECKING:
    from tether.core.ids import Epoch
    from tether.engine.messages import Purpose
    from tether.engine.ports import Cluster, Statuses
    from tether.engine.query.runner import Runner
    from tether.engine.slot.program import Program


class AheadRun:
    """Runs the available rows after the query's last epoch as if none were missing.

    Args:
        main: The query itself.
        cluster: The slots of the query, with sinks that mark the rows as tentative.
        in_place: Whether to work on the query's own state, to be rolled back; else on a copy of it.
    """

    def __init__(self, main: Runner[Any], cluster: Cluster[Any], *, in_place: bool) -> None:
        self._main, self._cluster = main, cluster
        self._clocks = main.books.clocks.fork()
        self._name = uuid.uuid4().hex[:12]
        self._lineages = {
            name: None if (known := main.books.lineages.expected(name)) is None else dict(known)
            for name in main.books.operators
        }
        self._steps = 0
        self._epoch = epoch_after(main.committed_epoch)
        self.in_place = in_place
        """Whether it works on the query's own state."""
        self.bytes = 0
        """Bytes of memory that it holds: copies of state, or journals."""

    def run(self, given: Any) -> Statuses:
        """Run rows of which some are missing through all operators."""
        statuses = self._cluster.run(self, self._epoch, given)
        self._clocks.advance(statuses, self._epoch)
        self._steps += 1
        self._note(statuses)
        return statuses

    def leave(self) -> None:
        """Continue on a copy from now on, because the query is about to use its own state again."""
        self.in_place = False
        self._note(self._cluster.ask(self, "copy", self._epoch))

    def end(self) -> None:
        """Drop the copy. Changes made in place are rolled back by the query's next epoch."""
        if not self.in_place:
            self._cluster.clean(self, self._epoch)

    def program(
        self, operator: str, epoch: Epoch, turn: int, purpose: Purpose = "epoch", table: str = ""
    ) -> Program:
        """What the slots of an operator are told; see :class:`tether.engine.ports.Orders`."""
        program = self._main.orders.program(operator, epoch, turn, purpose, table)
        ahead = Ahead(
            name=self._name,
            lineages=self._lineages[operator],
            step=self._steps,
            in_place=self.in_place,
        )
        control = msgspec.structs.replace(
            program.control,
            ahead=ahead,
            clock=self._clocks.now(operator),
            # All runs ahead use one name, so a new one replaces what an earlier one has left.
            arena="" if self.in_place else f"{program.control.query}-ahead",
        )
        return replace(program, control=control)

    def _note(self, statuses: Statuses) -> None:
        self._cluster.forget_reports()
        self.bytes = sum(status.resident_bytes for status in statuses.values())
