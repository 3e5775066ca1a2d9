"""One life of a random program's driver: from its start to its stop, its error or its death.

It runs in a process of its own, so that a kill is a kill. What it learns it writes to a log at once.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

import msgspec

import tether
from tether.chaos.faults import Fault, release
from tether.core.errors import ChangedProgramError, QueryRefusedError, TetherError
from tether.core.ids import Epoch, Seat, each_slot, epoch_after
from tether.core.windows import Decaying, Hopping, Sliding
from tether.engine.slot.residents import attached
from tether.engine.writing import writer
from tether.spark.stream import stream
from tether.state.identity import Owner
from tether.testing.fuzz.meaning import home
from tether.testing.fuzz.operators import SCHEMA, Made
from tether.testing.fuzz.program import KEYS
from tether.testing.inprocess import EpochSource, LocalSession
from tether.testing.inprocess.writers import settle_writers
from tether.testing.oracle import content

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from tether.spark.query import Query
    from tether.spark.stream import Stream
    from tether.testing.fuzz.program import Event, Policy, Program, Window

BOUNDS = ("promised", "spent", "at_risk", "worst_now", "extra", "ceiling", "items_lost")
EXECUTORS = 2


class Life:
    """A driver.

    Args:
        program: What it runs.
        rows: Those of each epoch, as Arrow has them.
        work: Directory of the whole run.
        policy: The policy that it starts with.
        events: Number of the first event that has not happened yet.
    """

    def __init__(
        self,
        program: Program,
        rows: Sequence[pa.RecordBatch],
        work: Path,
        policy: Policy,
        events: int,
    ) -> None:
        self._program, self._work, self._policy, self._next = program, work, policy, events
        self._faults = planned(program, work)
        scoped = program.arena_scope == "executor"
        self._session = LocalSession(
            home,
            batch_rows=program.batch_rows,
            executors=EXECUTORS if scoped else 0,
            faults=self._faults,
        )
        self._source = EpochSource(self._session, rows, SCHEMA)
        if program.compacts:
            writer.COMPACT_FLOOR_BYTES = 0
        self._log = os.open(work / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def live(self) -> None:
        """Start, run all epochs that are left, stop."""
        try:
            query = self._start()
        except TetherError as error:
            self._tell(refused=type(error).__name__, text=str(error))
            return
        try:
            self._run(query)
        except TetherError as error:
            self._tell(failed=type(error).__name__, text=str(error))
        settle_writers(self._faults)
        query.stop()

    def _start(self) -> Query:
        program = self._program
        end = first = stream(self._source, replays=True)
        for number, stage in enumerate(program.stages):
            end = end.apply(
                Made(stage),
                key=list(stage.key),
                parallelism=stage.slots,
                feedback_to=first if stage.feeds_back else None,
                window=window_of(program.window),
                event_time="t" if program.window and program.window.by == "seconds" else None,
            )
            first = end if number == 0 else first
        return self._started(end)

    def _started(self, end: Stream) -> Query:
        program = self._program
        policy = policy_of(self._policy, program.window)
        each = {stage.name: policy for stage in program.stages}
        return end.start(
            self._sink,
            tolerance=each if program.own_policies else policy,
            backup=str(self._work / "backup"),
            checkpoint=str(self._work / "checkpoint"),
            arena_dir=str(self._work / "arena"),
            arena_scope=program.arena_scope,
            allow_changed=["policy"],
            faults=self._faults,
        )

    def _run(self, query: Query) -> None:
        for epoch in range(committed(self._work) + 1, len(self._program.epochs)):
            if self._happen(query, epoch):
                return
            for strike, fault in zip(self._program.strikes, self._faults, strict=True):
                if fault.action == "hold" and strike.until <= epoch:
                    release(fault)
            self._source.available = epoch + 1
            query.processAllAvailable()
            settle_writers(self._faults)
            self._look(query, epoch)
        self._tell(done=True)

    # ---- what happens to it --------------------------------------------------------------------

    def _happen(self, query: Query, epoch: int) -> bool:
        """Let events happen that come before an epoch; whether this life is over by one."""
        while self._next < len(self._program.events):
            event = self._program.events[self._next]
            if event.epoch > epoch:
                return False
            self._next += 1
            self._tell(event=self._next - 1)
            if event.what == "restart":
                return True
            self._suffer(query, event)
        return False

    def _suffer(self, query: Query, event: Event) -> None:
        if event.what == "rescale":
            self._rescale(query, event)
        if event.what in ("crash", "damage"):
            os.kill(os.getpid(), signal.SIGKILL)
        if event.what == "executor" and self._session.executors is not None:
            self._session.executors.kill(event.slot or 0)
        if event.what == "lose":
            wanted = "*" if event.operator is None else f"{event.operator}-{event.slot}-*"
            for arena in (self._work / "arena").glob(f"tether-*/{wanted}"):
                shutil.rmtree(arena, ignore_errors=True)

    def _rescale(self, query: Query, event: Event) -> None:
        assert event.operator is not None
        try:
            query.rescale(event.operator, event.slots)
        except (ChangedProgramError, QueryRefusedError) as error:
            if query.exception() is not None:
                raise
            self._tell(kept=event.operator, text=str(error))

    def _sink(self, rows: Any, epoch: int) -> None:
        takings = self._program.sinks
        taking = takings[epoch % len(takings)]
        if taking == "fail" and not (failed := self._work / f"failed-{epoch}").exists():
            failed.touch()
            raise RuntimeError("the sink failed on purpose")
        if taking in ("part", "part-all", "part-unheard"):
            rows.take(1, "finish" if taking == "part-unheard" else "close")
        if taking in ("all", "twice", "all-part", "part-all", "fail"):
            found = rows.collect()
            found = rows.collect() if taking == "twice" else found
            given = [{name: row[name] for name in row if name != "t"} for row in found]
            self._tell(gave=epoch, rows=given)
        if taking == "all-part":
            rows.take(1)

    # ---- what it tells -------------------------------------------------------------------------

    def _look(self, query: Query, epoch: int) -> None:
        names = [stage.name for stage in self._program.stages]
        bounds: dict[str, Any] = {}
        for name in (*names, ""):
            now = query.bound(name or None)
            bounds[name] = {field: _plain(getattr(now, field)) for field in BOUNDS}
        states = {name: self._states(query, name, Epoch(epoch)) for name in names}
        self._tell(told=epoch, bounds=bounds, states=states)

    def _states(self, query: Query, name: str, epoch: Epoch) -> list[Any]:
        """What each slot holds at the end of an epoch; nothing where it holds nothing of that."""
        found: list[Any] = []
        for runner in query._driver.runners:
            if name not in runner.books.operators:
                continue
            program = runner.orders.program(name, epoch_after(epoch), 0)
            seats = program.control.seats
            for slot in each_slot(runner.books.operators[name].slots):
                seat = Seat(slot) if seats is None else seats.voices[slot]
                owner = Owner.of(self._session.executor(seat))
                resident_id = program.control.resident_id(slot, seat)
                with attached(program, resident_id, owner) as resident:
                    there = resident.found and resident.state.version == epoch
                    found.append(_contents(resident.state) if there else None)
        return found

    def _tell(self, **told: Any) -> None:
        os.write(self._log, msgspec.json.encode(told) + b"\n")


def _contents(state: Any) -> dict[str, list[Any]]:
    """All entries of all primitives, as lists of key and value."""
    found = {}
    for name, spec in state.specs().items():
        entries = []
        for key, values in content(state[name]).items():
            if spec["kind"] == "object":
                entries.append([(), int(values)])
                continue
            whole = key
            if isinstance(key, int):
                whole = divmod(key, KEYS) if spec["kind"] == "matrix" else (key,)
            entries.append([whole, next(iter(values.values()))])
        found[name] = entries
    return found


def _plain(value: float) -> float | str:
    return value if abs(value) != float("inf") else "inf"


def committed(work: Path) -> int:
    """The last epoch that Spark's log has."""
    folder = work / "checkpoint" / "commits"
    found = [int(file.name) for file in folder.glob("[0-9]*")] if folder.exists() else []
    return max(found, default=-1)


def planned(program: Program, work: Path) -> list[Fault]:
    """The program's strikes, as faults of the runtime."""
    return [
        Fault(
            point=strike.point,  # type: ignore[arg-type]
            action=strike.action,  # type: ignore[arg-type]
            epoch=strike.epoch,
            slot=strike.slot,
            operator=strike.operator,
            marker=str(work / f"strike-{number}"),
            seconds=0.01,
        )
        for number, strike in enumerate(program.strikes)
    ]


def window_of(window: Window | None) -> Any:
    """A program's window, as the runtime's."""
    if window is None:
        return None
    kinds = {"hopping": Hopping, "sliding": Sliding, "decaying": Decaying}
    return kinds[window.kind](window.length, window.by)


def policy_of(policy: Policy, window: Window | None) -> Any:
    """A program's policy, as the runtime's."""
    if policy.kind == "approximate":
        return tether.Approximate(
            policy.theta,
            policy.lost_items,
            window=window_of(window),
            early=policy.early,
            backup_target=policy.target,
            rounding=policy.rounding,
            heal=tether.Barrier(policy.heal) if policy.heal else None,
        )
    if policy.kind == "mini-batch":
        return tether.MiniBatch()
    if policy.kind == "upstream-backup":
        return tether.UpstreamBackup(policy.every)
    if policy.kind == "partially-active":
        return tether.PartiallyActive(share=policy.share, snapshots=_barrier_of(policy))
    if policy.kind == "barrier":
        return _barrier_of(policy)
    return tether.NoTolerance()


def _barrier_of(policy: Policy) -> tether.Barrier:
    return tether.Barrier(
        policy.interval,
        mode=policy.mode,
        meanwhile=policy.meanwhile or None,
        strategy=policy.strategy,
    )
