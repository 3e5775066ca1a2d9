"""What a simulation found: figures, promises kept or not, in the form of the benchmarks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.simulate.faults import draw_faults
from tether.simulate.results import result_of
from tether.simulate.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tether.simulate.faults import Fault
    from tether.simulate.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Report:
    """The outcome of one simulation. Times are virtual, but for ``wall_seconds``."""

    scenario: Scenario
    faults: dict[str, int]
    """Faults that struck, by kind."""
    losses: int
    """Losses of a slot's state; one fault of a node or rack causes many."""
    events: int
    items: int
    """Items that the sources gave out."""
    virtual_seconds: float
    wall_seconds: float
    slot_seconds: dict[str, float]
    """Seconds of all slots together: spent on work, and lost waiting for backups, for acknowledgements,
    and being down."""
    bytes_written: dict[str, int]
    writes: dict[str, int]
    """Writes by what they hold: state, items, control (drops, numbers of failures)."""
    state_error: tuple[float, ...]
    """What the states of each operator are wrong by at the end, copies added up."""
    most_state_error: float
    """Θ + L·α; Θ + (L + Γ)·α in a pipeline."""
    lost: tuple[float, int, int]
    """State, items and unacknowledged items lost, as measured loss by loss."""
    promised: tuple[float, float, float]
    """Θ, L, Γ."""
    reported: float
    """State error that a query would have reported as spent: at least what was measured."""
    lost_outputs: int
    most_lost_outputs: float
    torn: int
    """Torn records that recoveries found and cut off."""
    violations: tuple[str, ...]
    """Promises that were not kept; none, unless something is broken."""
    recovery_seconds: tuple[float, ...]
    """For each loss: seconds from the death of the slot until it could continue."""
    loss_times: tuple[float, ...]
    state_lost: tuple[float, ...]
    """For each loss: distance of the recovered state from the lost one."""
    thetas: tuple[float, ...]
    """For each loss: θ of the slot at that time."""

    @property
    def throughput_loss(self) -> float:
        """Part of the slots' busy time that fault tolerance and failures took."""
        total = sum(self.slot_seconds.values())
        return 1 - self.slot_seconds["work"] / total if total else 0.0

    @property
    def backup_loss(self) -> float:
        """Part of the busy time, downtime left out, that waiting for backups took."""
        up = sum(self.slot_seconds.values()) - self.slot_seconds["down"]
        return self.slot_seconds["backup"] / up if up else 0.0

    def recovery(self, part: float) -> float:
        """A quantile of the recovery times, in seconds; 0 if there was no loss."""
        times = self.recovery_seconds
        return float(np.quantile(times, part)) if times else 0.0

    def plain(self) -> dict[str, Any]:
        """One JSON object of the form that ``tether bench --json`` prints."""
        scenario = self.scenario
        workload = {
            "slots": scenario.slots,
            "operators": scenario.operators,
            "copies": scenario.copies,
            "fan_out": scenario.fan_out,
            "rounds": scenario.rounds,
            "batch": scenario.batch,
            "keys": scenario.keys,
            "alpha": scenario.alpha,
            "policy": dict(scenario.policy.describe()),
        }
        return result_of(
            scenario.policy.name,
            workload,
            wall_ms=round(self.wall_seconds * 1000, 2),
            detail=self._detail(),
            violations=len(self.violations),
            seed=scenario.seed,
        )

    def _detail(self) -> dict[str, Any]:
        state, items, unacked = self.lost
        return {
            "faults": self.faults,
            "losses": self.losses,
            "events": self.events,
            "items": self.items,
            "virtual_seconds": round(self.virtual_seconds, 6),
            "throughput_loss": round(self.throughput_loss, 6),
            "backup_loss": round(self.backup_loss, 6),
            "bytes_written": self.bytes_written,
            "writes": self.writes,
            "recovery_seconds": {
                "median": round(self.recovery(0.5), 6),
                "p99": round(self.recovery(0.99), 6),
                "worst": round(self.recovery(1.0), 6),
            },
            "state_error": [round(error, 6) for error in self.state_error],
            "most_state_error": self.most_state_error,
            "state_lost": round(state, 6),
            "state_lost_reported": self.reported,
            "items_lost": items,
            "unacked_lost": unacked,
            "lost_outputs": self.lost_outputs,
            "most_lost_outputs": self.most_lost_outputs,
            "torn_records_cut": self.torn,
            "violations": list(self.violations[:20]),
        }


def simulate(
    scenario: Scenario, *, failures: int = 0, faults: Iterable[Fault] | None = None
) -> Report:
    """Run a scenario to the end of its stream, with that many drawn faults or the given ones.

    Guarantee: the same scenario and faults give the same report, ``wall_seconds`` excepted.

    Args:
        scenario: What to simulate.
        failures: Number of faults to draw from the scenario's seed.
        faults: Faults to use instead.

    Example:
        >>> from tether.policies.approximate import Approximate
        >>> from tether.simulate.scenario import Scenario
        >>> report = simulate(Scenario(copies=4, policy=Approximate(400, 40)), failures=5)
        >>> report.violations, max(report.state_error) <= report.most_state_error
        ((), True)
    """
    began = time.perf_counter()
    schedule = list(draw_faults(scenario, failures) if faults is None else faults)
    world = World(scenario, schedule)
    world.run()
    return summarise(world, schedule, time.perf_counter() - began)


def summarise(world: World, schedule: list[Fault], wall_seconds: float) -> Report:
    """The report of a world that has come to its end."""
    scenario, book, budget = world.scenario, world.book, world.scenario.policy.budget
    reported = book.bound().spent
    book.check("state lost, against what is reported", book.lost[0], reported)
    kinds = [fault.kind for fault in schedule]
    seconds = {
        what: sum(slot.seconds[what] for slot in world.slots)
        for what in ("work", "backup", "acks", "down")
    }
    return Report(
        scenario=scenario,
        faults={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        losses=len(book.tolls),
        events=world.clock.events,
        items=scenario.copies * scenario.rounds * scenario.batch,
        virtual_seconds=world.clock.now,
        wall_seconds=wall_seconds,
        slot_seconds=seconds,
        bytes_written=dict(world.store.written),
        writes=dict(world.store.writes),
        state_error=tuple(world.state_error(op) for op in range(scenario.operators)),
        most_state_error=scenario.most_state_error,
        lost=book.lost,
        promised=(budget.max_state_error, budget.max_lost_items, budget.max_unacked_items),
        reported=reported,
        lost_outputs=world.ideal_outputs - world.outputs,
        most_lost_outputs=scenario.most_lost_outputs,
        torn=world.torn,
        violations=tuple(book.violations),
        recovery_seconds=tuple(toll.seconds for toll in book.tolls),
        loss_times=tuple(toll.time for toll in book.tolls),
        state_lost=tuple(toll.state for toll in book.tolls),
        thetas=tuple(toll.allowed.theta for toll in book.tolls),
    )
