"""The query that a simulation in epochs runs: its scenario, its operators and their rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tether.core.checks import count
from tether.core.errors import BadValueError
from tether.core.graph import Edge, Graph, Node
from tether.core.ids import Epoch, Slot
from tether.core.placement import Placement
from tether.engine.operators import CopyPlan, QueryOperator, QuerySettings
from tether.operator import Operator
from tether.planning.plans import plan
from tether.planning.reading import topology_of
from tether.state.arrow import raw, wrapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tether.output import Output
    from tether.planning.topology import Topology
    from tether.policies.policy import Policy
    from tether.state.segment import Array
    from tether.state.slot import SlotState

ROWS = pa.schema([("key", pa.int64()), ("amount", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class EpochScenario:
    """A query to simulate: ``operators`` in a row, ``copies`` slots of each, slot j feeding slot j.

    Args:
        copies: Slots of each operator.
        policy: Any fault-tolerance policy.
        operators: Length of the pipeline.
        epochs: How many are run.
        batch: Rows of a slot in an epoch.
        keys: Keys of a slot's state.
        alpha: Largest change of the state by one row.
        slots_per_node: Slots that a node's failure takes.
        nodes: Nodes that slots and their copies are on, those that stand by among them. None: everything
            is in one place, where ``PartiallyActive`` has no copies and works as its ``Barrier``.
        racks: Racks of these nodes, except those that stand by.
        down: Epochs after which a node that died is replaced.
        seed: Of the stream and the faults.

    Example:
        >>> from tether.policies.mini_batch import MiniBatch
        >>> EpochScenario(copies=4, operators=2, policy=MiniBatch()).slots
        8
    """

    copies: int
    policy: Policy
    operators: int = 1
    epochs: int = 6
    batch: int = 16
    keys: int = 32
    alpha: int = 5
    slots_per_node: int = 8
    nodes: int | None = None
    racks: int = 1
    down: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        units = {
            "copies": "slots",
            "operators": "operators",
            "epochs": "epochs",
            "batch": "rows",
            "keys": "keys",
            "alpha": "units of the divergence",
            "slots_per_node": "slots",
        }
        for name, unit in units.items():
            count(name, getattr(self, name), unit=unit)
        standby = self.standby
        if self.nodes is not None and self.nodes < standby + 2:
            raise BadValueError(
                f"{self.nodes} nodes are too few.",
                why=f"{standby} of them stand by, and slots need two to be apart from their copies.",
                do=f"Give at least {standby + 2}.",
            )

    @property
    def standby(self) -> int:
        """Nodes that stand by."""
        copying = self.policy.copying
        return 0 if copying is None else copying.standby

    @property
    def slots(self) -> int:
        """Slots of all operators together."""
        return self.copies * self.operators

    @property
    def names(self) -> list[str]:
        """Names of the operators, first to last."""
        return [f"{operator:03}" for operator in range(self.operators)]

    def rows(self, epoch: Epoch) -> tuple[Array, Array]:
        """Keys and amounts of an epoch, by slot of the first operator."""
        dice = np.random.default_rng([self.seed, 1, epoch])
        shape = (self.copies, self.batch)
        keys = dice.integers(0, self.keys, shape)
        return keys, dice.integers(-self.alpha, self.alpha + 1, shape)


class SumByKey(Operator):
    """Adds amounts up by key, and sends its rows on under other keys.

    Args:
        keys: Keys are 0 to ``keys`` - 1.
        sends: Whether another operator follows.
    """

    output = "key bigint, amount bigint"
    repeats = True

    def __init__(self, keys: int, *, sends: bool) -> None:
        self._keys, self._sends = keys, sends

    def setup(self, state: SlotState) -> None:
        """One vector of sums."""
        self._sums = state.vector("sums", self._keys, dtype="int64", divergence="l1")

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Add, and send on."""
        keys, amounts = raw(batch.column(0), "int64"), raw(batch.column(1), "int64")
        self._sums.add(keys, amounts)
        if self._sends:
            sent = wrapped(sent_on(keys, self._keys))
            out.emit(pa.RecordBatch.from_arrays([sent, batch.column(1)], schema=ROWS))


def copies_of(scenario: EpochScenario, graph: Graph) -> CopyPlan | None:
    """Which slots of a scenario get a copy, as its policy's planner chooses."""
    policy = scenario.policy.copying
    if policy is None or scenario.nodes is None:
        return None

    def topology(rates: Mapping[str, Sequence[float] | float]) -> Topology:
        links = dict.fromkeys(pairwise(scenario.names), "one-to-one")
        return topology_of(graph, rates=rates, partitionings=links)  # type: ignore[arg-type]

    chosen = plan(
        topology({scenario.names[0]: 1.0}),
        policy.copies,
        share=policy.share,
        planner=policy.planner,
        bound=False,
    )
    copied = {name: tuple(map(Slot, chosen.numbers(name))) for name in scenario.names}
    return CopyPlan(
        copied={name: numbers for name, numbers in copied.items() if numbers},
        standby=policy.standby,
        gain=policy.adapt,
        planner=policy.planner,
        topology=topology,
    )


def sent_on(keys: Array, of: int) -> Array:
    """The keys under which rows are sent on."""
    return (keys * 7 + 3) % of


def _batch(keys: Array, amounts: Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([wrapped(keys), wrapped(amounts)], schema=ROWS)


class EpochRows:
    """The rows of one epoch, made when they are asked for."""

    def __init__(self, scenario: EpochScenario, epoch: Epoch) -> None:
        self._scenario, self._epoch = scenario, epoch

    def at(self, place: int) -> tuple[Array, Array]:
        """Keys and amounts as they reach the operator at a place in the row, by slot."""
        keys, amounts = self._scenario.rows(self._epoch)
        for _ in range(place):
            keys = sent_on(keys, self._scenario.keys)
        return keys, amounts

    def by_slot(
        self, operator: QueryOperator, emitted: Mapping[str, list[list[pa.RecordBatch]]]
    ) -> list[list[pa.RecordBatch]]:
        """The rows of an operator's slots; see :class:`tether.local.cluster.Feed`."""
        names = self._scenario.names
        place = names.index(operator.name)
        if place and names[place - 1] in emitted:
            return emitted[names[place - 1]]
        keys, amounts = self.at(place)  # earlier operators did not run again
        size = self._scenario.batch
        # One batch for all slots, cut into slices: creating thousands of small ones is slower than
        # applying them.
        every = _batch(keys.ravel(), amounts.ravel())
        return [[every.slice(first, size)] for first in range(0, keys.size, size)]


def query_of(
    scenario: EpochScenario,
) -> tuple[dict[str, QueryOperator], dict[str, SumByKey], QuerySettings]:
    """The scenario's query: its operators by name, what they do, and what holds for all of it."""
    names = scenario.names
    graph = Graph(
        tuple(Node(name, scenario.copies) for name in names),
        tuple(Edge(one, other, wiring="one-to-one") for one, other in pairwise(names)),
    )
    operators = {
        name: QueryOperator(
            name=name,
            slots=scenario.copies,
            blob=b"",
            policy=scenario.policy,
            placement=Placement(copies=scenario.copies, sharers=scenario.operators),
            window=None,
            output_arrow=ROWS,
            repeats=True,
        )
        for name in names
    }
    instances = {name: SumByKey(scenario.keys, sends=name != names[-1]) for name in names}
    return operators, instances, QuerySettings(graph=graph, copies=copies_of(scenario, graph))
