"""The simulator in epochs: the engine's own slots, commits, recoveries and rewinds, under every policy.

Thousands of slots run in this process, one after the other, through seeded failures: tasks killed at
any point of the slot protocol, resident state lost, drivers killed before and after their records. It
is the code that runs on Spark (:mod:`tether.engine`), on state on the heap and a store in memory
(:mod:`tether.local`). What Spark itself does, placing and shuffling, is not simulated; nor are items in
flight, which :mod:`tether.simulate.world` follows.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tether.core.checks import count
from tether.core.errors import BadValueError
from tether.core.graph import Edge, Graph, Node
from tether.core.ids import Epoch, Slot, each_slot
from tether.core.placement import Placement
from tether.engine.operators import CopyPlan, QueryOperator, QuerySettings
from tether.local.nodes import Nodes
from tether.local.run import LocalRun
from tether.operator import Operator
from tether.planning.plans import plan
from tether.planning.reading import topology_of
from tether.simulate.epoch_faults import Striking, draw_epoch_faults
from tether.simulate.results import result_of
from tether.state.vector import Vector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tether.output import Output
    from tether.planning.topology import Topology
    from tether.policies.policy import Policy
    from tether.simulate.epoch_faults import EpochFault
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
        alpha: Most that one row changes the state by.
        slots_per_node: Slots that a node's failure takes.
        nodes: Nodes that slots and their copies are on, those that stand by among them. None: all is in
            one place, where ``PartiallyActive`` makes no copies and is the ``Barrier`` in it.
        racks: Racks that these nodes are in, those that stand by excepted.
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
        keys, amounts = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        self._sums.add(keys, amounts)
        if self._sends:
            sent = pa.array(sent_on(keys, self._keys))
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
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(amounts)], schema=ROWS)


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
        keys, amounts = self.at(place)  # operators before it have had theirs, and did not run again
        size = self._scenario.batch
        # One batch for all, cut into pieces: thousands of small ones take longer than to apply them.
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


class EpochWorld:
    """Everything of one simulation in epochs.

    Args:
        scenario: What to simulate.
        faults: What goes wrong.

    Example:
        >>> from tether.policies.mini_batch import MiniBatch
        >>> world = EpochWorld(EpochScenario(copies=3, policy=MiniBatch()), [])
        >>> world.run()
        >>> world.violations
        []
    """

    def __init__(self, scenario: EpochScenario, faults: Iterable[EpochFault]) -> None:
        self.scenario = scenario
        nodes = None
        if scenario.nodes is not None:
            nodes = Nodes(
                scenario.nodes, racks=scenario.racks, standby=scenario.standby, down=scenario.down
            )
        self.nodes = nodes
        self.fidelity: list[float] = []
        """Output fidelity of each epoch's rows, as they were given first."""
        self.striking = Striking(faults, scenario.slots_per_node, nodes)
        operators, instances, settings = query_of(scenario)
        self.query = LocalRun(
            list(operators.values()), instances, settings, strike=self.striking, nodes=nodes
        )
        self.ideal = np.zeros((scenario.operators, scenario.copies, scenario.keys), np.int64)
        """What every state would be without failures."""
        self.violations: list[str] = []
        self.errors = [0.0] * scenario.operators
        """What the states of each operator are wrong by now, slots added up."""

    def run(self) -> None:
        """Run all epochs; after each, compare states, bound and budget."""
        for epoch in map(Epoch, range(self.scenario.epochs)):
            for slot in self.striking.lost_before(epoch):
                self.query.lose(*slot)
            if self.nodes is not None:
                self.nodes.replace(epoch)
                if lost := self.striking.nodes_before(epoch):
                    self.query.lose_nodes(lost, epoch)
            self.query.run(EpochRows(self.scenario, epoch))
            self._add_ideal(epoch)
            self.fidelity.append(self.query.fidelity)
            if not self.query.tentative:
                self._check(epoch)
        self.query.settle()
        self._check(Epoch(self.scenario.epochs - 1))

    def _add_ideal(self, epoch: Epoch) -> None:
        keys, amounts = self.scenario.rows(epoch)
        copies = np.arange(self.scenario.copies)[:, None]
        for operator in range(self.scenario.operators):
            np.add.at(self.ideal[operator], (copies, keys), amounts)
            keys = sent_on(keys, self.scenario.keys)

    def _check(self, epoch: Epoch) -> None:
        policy = self.scenario.policy
        promised = policy.budget.max_state_error
        for operator, name in enumerate(self.scenario.names):
            error = self.errors[operator] = float(self._error(operator, name))
            told = self.query.bound(name)
            if error > told.spent:
                self._violated(epoch, name, f"is wrong by {error:g}, and {told.spent:g} was told")
            if policy.recovery.bounded and error > promised:
                self._violated(epoch, name, f"is wrong by {error:g}, and {promised:g} was promised")
        if math.isfinite(promised) and sum(self.errors) > promised:
            self._violated(epoch, "all", f"are wrong by {sum(self.errors):g} in all")

    def _error(self, operator: int, name: str) -> float:
        held = []
        for slot in each_slot(self.scenario.copies):
            found = self.query.found(name, slot)
            if found is None or found.state.version != self.query.committed_epoch:
                return math.inf
            sums = found.state["sums"]
            assert isinstance(sums, Vector)
            held.append(sums.values)
        return float(np.abs(np.stack(held) - self.ideal[operator]).sum())

    def _violated(self, epoch: Epoch, operator: str, what: str) -> None:
        self.violations.append(f"epoch {epoch}: operator {operator} {what}")


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """The outcome of one simulation in epochs."""

    scenario: EpochScenario
    faults: dict[str, int]
    """Faults that struck, by point of the protocol."""
    recoveries: int
    losses: int
    """Recoveries that cost anything."""
    rewinds: int
    promotions: int
    """Slots whose copies spoke in their place."""
    take_overs: int
    fidelity: tuple[float, ...]
    """Of each epoch's rows as they were given first: 1 of stable ones."""
    frames: int
    frame_bytes: int
    state_error: tuple[float, ...]
    told: tuple[float, ...]
    """Of each operator: the error that a query would have reported as spent."""
    promised: float
    violations: tuple[str, ...]
    wall_seconds: float = field(compare=False)

    def plain(self) -> dict[str, Any]:
        """One JSON object of the form that ``tether bench --json`` prints."""
        scenario, wall = self.scenario, round(self.wall_seconds * 1000, 2)
        workload = {
            "slots": scenario.slots,
            "operators": scenario.operators,
            "copies": scenario.copies,
            "epochs": scenario.epochs,
            "batch": scenario.batch,
            "keys": scenario.keys,
            "policy": dict(scenario.policy.describe()),
        }
        if scenario.nodes is not None:
            workload |= {"nodes": scenario.nodes, "racks": scenario.racks}
        return result_of(
            scenario.policy.name,
            workload,
            wall_ms=wall,
            detail=self.detail(),
            violations=len(self.violations),
            seed=scenario.seed,
        )

    def detail(self) -> dict[str, Any]:
        """What was measured, as plain values."""
        return {
            "faults": self.faults,
            "recoveries": self.recoveries,
            "losses": self.losses,
            "rewinds": self.rewinds,
            "promotions": self.promotions,
            "take_overs": self.take_overs,
            "worst_fidelity": min(self.fidelity, default=1.0),
            "tentative_epochs": sum(one < 1.0 for one in self.fidelity),
            "frames": self.frames,
            "frame_bytes": self.frame_bytes,
            "state_error": list(self.state_error),
            "told": list(self.told),
            "promised": self.promised if math.isfinite(self.promised) else "inf",
            "violations": list(self.violations[:20]),
        }


def simulate_epochs(
    scenario: EpochScenario,
    *,
    failures: int = 0,
    faults: Iterable[EpochFault] | None = None,
) -> EpochReport:
    """Run a scenario with that many drawn faults, or the given ones.

    Guarantee: the same scenario and faults give the same report, ``wall_seconds`` excepted.

    Example:
        >>> from tether.policies.barrier import Barrier
        >>> report = simulate_epochs(EpochScenario(copies=6, policy=Barrier(2)), failures=9)
        >>> report.violations, report.state_error
        ((), (0.0,))
    """
    began = time.perf_counter()
    schedule = list(draw_epoch_faults(scenario, failures) if faults is None else faults)
    world = EpochWorld(scenario, schedule)
    world.run()
    ledgers = [world.query.runner.books.ledgers[name] for name in scenario.names]
    return EpochReport(
        scenario=scenario,
        faults=dict(world.striking.struck),
        recoveries=world.query.told["recovery"],
        losses=sum(ledger.totals["losses"] for ledger in ledgers),
        rewinds=world.query.told["rewound"],
        promotions=world.query.promoted,
        take_overs=world.query.told["taken-over"],
        fidelity=tuple(world.fidelity),
        frames=world.query.store.appended,
        frame_bytes=world.query.store.appended_bytes,
        state_error=tuple(world.errors),
        told=tuple(ledger.bound().spent for ledger in ledgers),
        promised=scenario.policy.budget.max_state_error,
        violations=tuple(world.violations),
        wall_seconds=time.perf_counter() - began,
    )
