"""The shape of a query: sources, plain DataFrame steps and operators, joined into a graph.

Nothing here runs. ``evaluate`` walks the graph once for every epoch and builds the epoch's plan, so
several operators in a row are one Spark job, and a node that feeds several others is computed once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from tether.core.errors import BadValueError, QueryRefusedError
from tether.core.graph import Edge, Graph
from tether.core.graph import Node as GraphNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from tether.core.windows import Window
    from tether.operator import Operator

ORIGIN = "__tether_origin"
"""Column that tells which source a row of several came from."""


@dataclass(frozen=True, eq=False)
class SourceNode:
    """Rows as Spark reads them."""

    rows: DataFrame
    parents: tuple[Node, ...] = ()
    replays: bool | None = None
    """Whether it can give the rows of an epoch again; None: Spark's plan decides."""


@dataclass(frozen=True, eq=False)
class StepNode:
    """Stateless DataFrame code between operators; called with the parents' rows in every epoch."""

    parents: tuple[Node, ...]
    function: Callable[..., DataFrame]
    regroups: bool = False
    """Whether it is known to put partitions together without a shuffle, as a union does."""


@dataclass(frozen=True, eq=False)
class OperatorNode:
    """An operator and how its rows are spread over its slots."""

    parents: tuple[Node, ...]
    operator: Operator
    name: str
    key: list[str]
    slots: int
    feedback_to: OperatorNode | None = None
    window: Window | None = None
    event_time: str | None = None
    lateness: float = 0.0
    amplification: float | Mapping[str, float] | None = None
    """What was declared for this use of the operator, in place of what it says itself."""


Node = SourceNode | StepNode | OperatorNode


def key_of(node: Node) -> list[str]:
    """The key of the operator that made a node's rows, through steps that have one input."""
    while isinstance(node, StepNode) and len(node.parents) == 1:
        (node,) = node.parents
    return node.key if isinstance(node, OperatorNode) else []


@dataclass(frozen=True)
class Flow:
    """A whole graph, named by its ends.

    Args:
        ends: The nodes whose rows go to a sink, each once.
    """

    ends: tuple[Node, ...]
    order: tuple[Node, ...] = field(init=False)
    """All nodes, parents before children."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", tuple(_parents_first(self.ends)))
        names = Counter(node.name for node in self.operators)
        twice = sorted(name for name, uses in names.items() if uses > 1)
        if twice:
            raise BadValueError(
                f"Several operators of the query are named {', '.join(map(repr, twice))}.",
                why="Backups and stories tell operators apart by name.",
                do="Pass name='…' to apply().",
            )
        for node in self.operators:
            target = node.feedback_to
            if target is not None and target not in self.upstream([node]) - {node}:
                raise BadValueError(
                    f"{node.name!r} sends feedback to {target.name!r}, which is not before it.",
                    why="Feedback goes against the stream, to an operator whose rows reach this one.",
                    do="Pass an operator that this one's input comes from.",
                )
        if not self.operators:
            raise QueryRefusedError(
                "The query has no operator.",
                why="Without state there is nothing that Tether could keep.",
                do="Call apply(...) first, or use Spark's own writeStream.",
            )

    @property
    def operators(self) -> list[OperatorNode]:
        """The operators, upstream ones first."""
        return [node for node in self.order if isinstance(node, OperatorNode)]

    @property
    def sources(self) -> list[SourceNode]:
        """The sources."""
        return [node for node in self.order if isinstance(node, SourceNode)]

    def upstream(self, nodes: Iterable[Node]) -> set[Node]:
        """The nodes themselves and all that their rows come from."""
        return set(_parents_first(tuple(nodes)))

    def senders(self, node: OperatorNode) -> dict[str, bool]:
        """Operators whose rows come in, and whether they come unchanged and along one way only."""
        ways = [way for parent in node.parents for way in _ways(parent)]
        often = Counter(way.sender for way in ways)
        return {sender.name: plain and often[sender] == 1 for sender, plain in ways}

    def children(self, node: OperatorNode) -> list[OperatorNode]:
        """The operators that the node's rows reach next, through steps or directly."""
        return [other for other in self.operators if node in _feeding(other)]

    def steps_to_end(self, node: OperatorNode) -> int:
        """Operators on the longest way from ``node`` to an end, itself not counted."""
        return max((1 + self.steps_to_end(child) for child in self.children(node)), default=0)

    def branches(self, node: OperatorNode) -> int:
        """How many operators and sinks take the node's rows, through steps or directly."""
        return max(1, len(self.children(node)) + self._sinks(node))

    def feeds_sink(self, node: OperatorNode) -> bool:
        """Whether a sink takes the node's rows, through steps or directly."""
        return self._sinks(node) > 0

    def _sinks(self, node: OperatorNode) -> int:
        steps = [end for end in self.ends if not isinstance(end, OperatorNode)]
        return self.ends.count(node) + sum(node in _feeding(end) for end in steps)


def graph_of(flow: Flow) -> Graph:
    """The graph for the engine's protocols."""
    nodes = tuple(GraphNode(node.name, node.slots) for node in flow.operators)
    edges = [Edge(node.name, to.name) for node in flow.operators for to in flow.children(node)]
    edges += [
        Edge(node.name, node.feedback_to.name, feedback=True)
        for node in flow.operators
        if node.feedback_to is not None
    ]
    return Graph(nodes, tuple(edges))


def evaluate(
    nodes: Sequence[Node],
    given: Mapping[Node, DataFrame],
    run: Callable[[OperatorNode, DataFrame], DataFrame],
    keep: Callable[[Node, DataFrame], DataFrame] = lambda _, rows: rows,
) -> dict[Node, DataFrame]:
    """Build the rows of every node, parents first.

    Args:
        nodes: Nodes to build, parents before children.
        given: Rows that are there already: of sources, or of another lane.
        run: Makes an operator's output from its input.
        keep: Called with every node's rows; may cache them.
    """
    frames = dict(given)
    for node in nodes:
        if node in frames:
            continue
        inputs = [frames[parent] for parent in node.parents]
        if isinstance(node, OperatorNode):
            frames[node] = keep(node, run(node, inputs[0]))
        elif isinstance(node, StepNode):
            frames[node] = keep(node, node.function(*inputs))
    return frames


def pack(
    sources: Sequence[SourceNode], reading: Mapping[SourceNode, DataFrame] | None = None
) -> DataFrame:
    """One DataFrame of the rows of all sources: Spark drives one input a query.

    Args:
        sources: The sources.
        reading: Of some of them, what is read in place of their own rows: the same rows, folded.
    """
    read = [(reading or {}).get(source, source.rows) for source in sources]
    if len(read) == 1:
        return read[0]
    packed = []
    for number, one in enumerate(read):
        inside = F.struct(*[F.col(f"`{name}`") for name in one.columns])
        packed.append(one.select(F.lit(number).alias(ORIGIN), inside.alias(f"source_{number}")))
    return reduce(lambda all_, rows: all_.unionByName(rows, allowMissingColumns=True), packed)


def unpack(sources: Sequence[SourceNode], rows: DataFrame) -> dict[Node, DataFrame]:
    """The rows of each source again, out of an epoch of what ``pack`` made."""
    if len(sources) == 1:
        return {sources[0]: rows}
    return {
        source: rows.where(F.col(ORIGIN) == number).select(f"source_{number}.*")
        for number, source in enumerate(sources)
    }


def _parents_first(ends: tuple[Node, ...]) -> Iterator[Node]:
    seen: set[Node] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node in seen:
            return
        seen.add(node)
        for parent in node.parents:
            yield from visit(parent)
        yield node

    for end in ends:
        yield from visit(end)


class _Way(NamedTuple):
    sender: OperatorNode
    plain: bool
    """Whether nothing but unions lies between."""


def _ways(node: Node, *, plain: bool = True) -> list[_Way]:
    """Every way by which rows of an operator come to a node."""
    if isinstance(node, OperatorNode):
        return [_Way(node, plain)]
    plain = plain and not (isinstance(node, StepNode) and not node.regroups)
    return [way for parent in node.parents for way in _ways(parent, plain=plain)]


def _feeding(node: Node) -> set[OperatorNode]:
    """The operators whose rows come into a node, with nothing but steps between."""
    found: set[OperatorNode] = set()
    waiting = list(node.parents)
    while waiting:
        parent = waiting.pop()
        if isinstance(parent, OperatorNode):
            found.add(parent)
        else:
            waiting.extend(parent.parents)
    return found
