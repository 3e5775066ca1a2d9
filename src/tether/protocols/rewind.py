"""After a loss under an exact policy: which slots go back to what, and from where the source is read.

The answer depends only on the policy's kind of recovery, the graph, and what is durable.

- ``last-epoch``: lost slots take the backup of the previous epoch; the current epoch is run again.
- ``replay``: lost slots take their own backups, and the rows logged since are replayed.
- ``rewind``: to the newest complete snapshot. Which slots go back is determined as in ABS 2015 §5: a
  lost slot needs all items since the snapshot again, so slots that send to it must produce them again,
  and so on up to the source. All others keep their state and drop items that they have seen, by number.
  This requires that items get the same content and numbers again: slots after one for which this is not
  known (``Node.repeats``) go back too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.core.errors import BadValueError, QueryRefusedError
from tether.core.graph import SlotId  # noqa: TC001 - msgspec reads the annotations at run time
from tether.core.ids import NEVER, Epoch, epoch_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tether.core.graph import Graph
    from tether.policies.policy import Policy
    from tether.policies.recovery import Recovery


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """One slot goes back."""

    slot: SlotId
    epoch: Epoch
    """To its state as of the end of this epoch; -1: to the initial state."""
    replay: bool = False
    """Whether rows logged in later epochs are replayed first."""
    feedback: bool = False
    """Whether the feedback items in its part are sent to it again."""


class RewindPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in this order: stop, restore, put feedback back, read the source again."""

    restore: tuple[Restore, ...]
    keep: tuple[SlotId, ...]
    """Slots that keep their state, and skip epochs that they have applied."""
    read_from: Epoch
    """First epoch whose rows are read from the source again."""
    void_from: Epoch
    """First epoch whose output is produced again; a sink must replace its output, not append it."""

    @property
    def partial(self) -> bool:
        """Whether some slots keep their state."""
        return bool(self.keep)


def plan_rewind(
    graph: Graph,
    recovery: Recovery,
    lost: Iterable[SlotId],
    epoch: Epoch,
    *,
    durable: Mapping[SlotId, Epoch] | Epoch,
    partial: bool = True,
) -> RewindPlan:
    """Plan the recovery from a loss.

    Args:
        graph: The query's.
        recovery: The policy's.
        lost: Slots whose state is lost.
        epoch: The current or next epoch.
        durable: Epoch of the newest complete snapshot (``rewind``), or of the newest counting
            backup of each slot (``replay``, ``last-epoch``); -1 for none.
        partial: Whether slots that need not go back may keep their state.

    Example:
        >>> from tether.core.graph import Edge, Graph, Node
        >>> from tether.policies.recovery import FROM_SNAPSHOT
        >>> graph = Graph((Node("a", 2), Node("b", 2)), (Edge("a", "b", wiring="one-to-one"),))
        >>> plan = plan_rewind(graph, FROM_SNAPSHOT, [SlotId("b", 1)], 9, durable=4)
        >>> [tuple(back.slot) for back in plan.restore], plan.read_from
        ([('a', 1), ('b', 1)], 5)
    """
    gone = frozenset(lost)
    unknown = gone - frozenset(graph.slots)
    if unknown:
        raise BadValueError(
            f"The graph has no slots {sorted(unknown)}.",
            why="They were told as lost.",
            do="Name slots of the graph.",
        )
    if recovery.rewinds:
        return _to_snapshot(graph, gone, _newest(durable), epoch, partial=partial)
    if not recovery.exact:
        raise BadValueError(
            f"Recovery {recovery.name!r} has no rewind.",
            why="It is not exact: a lost slot just goes on from its backup.",
            do="Use mini-batch, upstream-backup or barrier for exact recovery.",
        )
    restore = []
    for slot in sorted(gone):
        backup = durable if isinstance(durable, int) else durable.get(slot, NEVER)
        if recovery.every_change and backup != epoch - 1:
            raise BadValueError(
                f"Slot {slot.slot} of {slot.operator!r} has no backup of epoch {epoch - 1}.",
                why=f"Its newest is of epoch {backup}, but every committed epoch must be durable.",
                do="Restore the backup directory from a copy.",
            )
        restore.append(Restore(slot=slot, epoch=backup, replay=recovery.logs_rows))
    keep = tuple(slot for slot in graph.slots if slot not in gone)
    return RewindPlan(restore=tuple(restore), keep=keep, read_from=epoch, void_from=epoch)


def _newest(durable: Mapping[SlotId, Epoch] | Epoch) -> Epoch:
    if isinstance(durable, int):
        return durable
    raise BadValueError(
        "A rewind was asked for with an epoch for each slot.",
        why="All slots of a snapshot are of one epoch.",
        do="Give the epoch of the newest complete snapshot.",
    )


def _to_snapshot(
    graph: Graph, gone: frozenset[SlotId], complete: Epoch, epoch: Epoch, *, partial: bool
) -> RewindPlan:
    back = must_go_back(graph, gone) if partial and gone else frozenset(graph.slots * bool(gone))
    fed = {edge.target for edge in graph.edges if edge.feedback}
    restore = tuple(
        Restore(
            slot=slot,
            epoch=complete,
            feedback=slot.operator in fed,
        )
        for slot in sorted(back)
    )
    keep = tuple(slot for slot in graph.slots if slot not in back)
    first = epoch_after(complete) if back else epoch
    return RewindPlan(restore=restore, keep=keep, read_from=first, void_from=first)


def must_go_back(graph: Graph, lost: Iterable[SlotId]) -> frozenset[SlotId]:
    """The fewest slots that must go back to a snapshot when these are lost (ABS 2015 §5).

    Example:
        >>> from tether.core.graph import Edge, Graph, Node
        >>> ends = Edge("a", "b"), Edge("b", "c")
        >>> graph = Graph((Node("a"), Node("b"), Node("c")), ends)
        >>> sorted(slot.operator for slot in must_go_back(graph, [SlotId("b", 0)]))
        ['a', 'b']
        >>> graph = Graph((Node("a"), Node("b", repeats=False), Node("c")), ends)
        >>> sorted(slot.operator for slot in must_go_back(graph, [SlotId("b", 0)]))
        ['a', 'b', 'c']
    """
    back = frozenset(lost)
    while True:
        more = graph.upstream(back)
        uncertain = [slot for slot in more if not graph.repeats(slot)]
        more |= graph.downstream(uncertain)
        if more == back:
            return back
        back = more


def check_source(policy: Policy, source: str, *, replays: bool) -> None:
    """Refuse a source that cannot be read again, under a policy that needs it.

    Args:
        policy: The query's.
        source: Name of the source in the message.
        replays: Whether it can be read again from an earlier position.

    Raises:
        QueryRefusedError: The policy needs to read it again, and that is not possible.
    """
    if policy.recovery.rewinds and not replays:
        raise QueryRefusedError(
            f"The query cannot start: {source} cannot be read again.",
            why=f"{policy.name} goes back to a snapshot after a loss and reads the stream from there.",
            do="Read from files, Kafka or another source that keeps what it gave; or use "
            "upstream-backup, which keeps the rows itself.",
        )
