"""Going back with few slots: the others stay, and wait until those have come to the same epoch again.

ABS 2015 §5: a lost slot needs the items since the snapshot again, so whoever sends to it must make
them again, up to the source; all others keep their state and drop what they have seen. Here items are
numbered by epochs. So while slots catch up, epochs that were committed before are run once more for
the operators of those slots alone: slots that stayed let their rows pass, sinks, which have had the
output, get nothing, and no snapshot begins.

That is right only if an epoch has the same rows as the first time and the operators make the same of
them. The first is checked, epoch by epoch, against what Spark's logs said before they were cut. The
second an operator promises (``Operator.repeats``), and of steps between them Spark knows it.
Where either does not hold, everybody goes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tether.core.graph import Edge, Graph, Node, SlotId
from tether.engine.query.commit_entries import keeps_clock
from tether.engine.recovery.lost import LostStateError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tether.spark.graph.prepared import PreparedQuery
    from tether.spark.logs.checkpoint import SparkCheckpoint


@dataclass(frozen=True)
class CatchUp:
    """Slots that are on their way from a snapshot to where the others have stayed."""

    back: frozenset[SlotId]
    """Those that went back."""
    through: int
    """The epoch whose end the others have come to: the last one that is run again."""
    rows: Mapping[int, Any]
    """What each epoch's rows were the first time."""

    @property
    def operators(self) -> frozenset[str]:
        """Operators of which some slot went back: the only ones that are run."""
        return frozenset(slot.operator for slot in self.back)

    def kept(self, operator: str, slots: int) -> tuple[int, ...]:
        """Slots of an operator that stay as they are."""
        return tuple(slot for slot in range(slots) if SlotId(operator, slot) not in self.back)

    def check(self, checkpoint: SparkCheckpoint, epoch: int) -> None:
        """Make sure that an epoch that is run again has the rows that it had.

        Raises:
            LostStateError: It has others: those who stayed cannot be used any more.
        """
        if checkpoint.rows_of(epoch) != self.rows[epoch]:
            raise LostStateError(
                f"The stream was cut into other epochs when it was read again from epoch {epoch} on.",
                why="The source has no limit for an epoch, or its files have changed.",
                do="Nothing: the whole query goes back. With a limit, as maxFilesPerTrigger, only "
                "slots that must would do so.",
            )


def may_stay(query: PreparedQuery) -> bool:
    """Whether slots may keep their state while others go back: all is numbered, and made alike again.

    Not in a cycle, where all slots depend on each other; nor where windows end by event time, for
    then what a slot does depends on how far all of them have come.
    """
    return all(
        prepared.repeats and node.feedback_to is None and not keeps_clock(prepared)
        for node, prepared in query.operators.items()
    )


def graph_of(query: PreparedQuery) -> Graph:
    """Who sends to whom."""
    flow = query.flow
    nodes = tuple(Node(node.name, node.slots) for node in flow.operators)
    edges = [Edge(node.name, to.name) for node in flow.operators for to in flow.children(node)]
    edges += [
        Edge(node.name, node.feedback_to.name, feedback=True)
        for node in flow.operators
        if node.feedback_to is not None
    ]
    return Graph(nodes, tuple(edges))


def must_be_restored(query: PreparedQuery, lost: Collection[SlotId]) -> frozenset[SlotId]:
    """The lost slots, and those that may be given other rows than before when these are.

    Without a key, which slot a row comes to is not for the row to say.
    """
    whole = {
        node.name
        for node in query.flow.operators
        if not node.key and any(slot.operator == node.name for slot in lost)
    }
    return frozenset(
        slot for slot in graph_of(query).slots if slot in lost or slot.operator in whole
    )
