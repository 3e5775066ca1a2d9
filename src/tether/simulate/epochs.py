"""The simulator in epochs: the engine's own slots, commits, recoveries and rewinds, under every policy.

Thousands of slots run in this process, one after the other, through seeded failures: tasks killed at
any point of the slot protocol, resident state lost, drivers killed before and after their records. It
is the code that runs on Spark (:mod:`tether.engine`), on state on the heap and a store in memory
(:mod:`tether.local`). What Spark itself does, placing and shuffling, is not simulated; nor are items in
flight, which :mod:`tether.simulate.world` follows.
"""

from __future__ import annotations

import gc
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.core.ids import Epoch, each_slot
from tether.local.nodes import Nodes
from tether.local.run import LocalRun
from tether.simulate.epoch_faults import Striking, draw_epoch_faults
from tether.simulate.epoch_query import EpochRows, query_of, sent_on
from tether.simulate.results import result_of
from tether.state.vector import Vector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tether.simulate.epoch_faults import EpochFault
    from tether.simulate.epoch_query import EpochScenario


class EpochWorld:
    """Everything of one simulation in epochs.

    Args:
        scenario: What to simulate.
        faults: What goes wrong.

    Example:
        >>> from tether.policies.mini_batch import MiniBatch
        >>> from tether.simulate.epoch_query import EpochScenario
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
        """Output fidelity of each epoch's first output."""
        self.striking = Striking(faults, scenario.slots_per_node, nodes)
        operators, instances, settings = query_of(scenario)
        self.query = LocalRun(
            list(operators.values()), instances, settings, strike=self.striking, nodes=nodes
        )
        self.ideal = np.zeros((scenario.operators, scenario.copies, scenario.keys), np.int64)
        """What every state would be without failures."""
        self.violations: list[str] = []
        self.errors = [0.0] * scenario.operators
        """Current error of each operator's state, summed over its slots."""

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
    """Number of slots for which a copy has spoken."""
    take_overs: int
    fidelity: tuple[float, ...]
    """Output fidelity of each epoch's first output; 1 for stable rows."""
    frames: int
    frame_bytes: int
    state_error: tuple[float, ...]
    told: tuple[float, ...]
    """For each operator: the error that a query would have reported as spent."""
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


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Thousands of live states are hundreds of thousands of objects, with hardly any garbage in cycles.

    Python's default frequency of collections takes a tenth of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(200_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)


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
        >>> from tether.simulate.epoch_query import EpochScenario
        >>> report = simulate_epochs(EpochScenario(copies=6, policy=Barrier(2)), failures=9)
        >>> report.violations, report.state_error
        ((), (0.0,))
    """
    began = time.perf_counter()
    schedule = list(draw_epoch_faults(scenario, failures) if faults is None else faults)
    world = EpochWorld(scenario, schedule)
    with _rare_collections():
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
