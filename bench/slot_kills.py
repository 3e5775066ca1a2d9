"""Hundreds of real kills without Spark: slots as processes, with their memory, backups and losses.

Each slot runs the epoch protocol (:mod:`tether.engine.slot.epoch`) in a process of its own, on a real
arena that dies with it and a real backup directory. At a random moment the process gets a SIGKILL: while
it attaches, works, writes a backup or waits. This process is the driver: it commits epochs, starts a new
process for a slot that is gone, lets it run the epoch again, and asks the runtime's own books for the
bound. After every committed epoch the resident state is compared with the truth.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import tether
from tether.backup.commits import CommitRecord
from tether.backup.opening import StoreAddress
from tether.core.ids import GENESIS, Epoch, Lineage, ResidentId, Slot, each_slot
from tether.core.placement import Placement
from tether.engine.messages import SlotControl
from tether.engine.query.commit_entries import slot_commit
from tether.engine.query.ledger import Ledger
from tether.engine.slot.epoch import SlotEpoch
from tether.engine.slot.program import Program
from tether.engine.slot.residents import ArenaHost, attached
from tether.operator import Operator
from tether.state.identity import Owner
from tether.state.table import Table
from tether.testing.processes import kill

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from tether.backup.commitcodec import LogEnd
    from tether.engine.messages import SlotStatus
    from tether.output import Output
    from tether.state.slot import SlotState

SLOTS = 2
EPOCHS = 24
ROWS = 2_000
KEYS = 400
NAME = "key_counts"


class KeyCounts(Operator):
    """Counts per key, whose divergence is chosen."""

    output = "k long, n long"

    def __init__(self, divergence: str) -> None:
        self._divergence = divergence

    def setup(self, state: SlotState) -> None:
        """A count for each key."""
        self._seen = state.table(
            "seen", {"k": pa.int64()}, {"n": "int64"}, divergence=self._divergence
        )

    def process(self, batch: pa.RecordBatch, out: Output) -> None:
        """Count."""
        del out
        self._seen.add(batch, n=1)


@dataclass
class Tally:
    """What was seen in all lives together."""

    kills: int = 0
    mid_epoch: int = 0
    """Kills that struck before the slot had reported its epoch."""
    losses: int = 0
    exact_recoveries: int = 0
    """Recoveries whose backup was the state itself."""
    compared: int = 0
    """Committed epochs whose state was compared with the truth."""
    violations: int = 0
    items_lost: int = 0
    """Rows missing in the states at the ends of all lives."""
    to_spent: list[float] = field(default_factory=list)
    """Error to the bound told at that moment, wherever something had been spent."""
    to_promised: list[float] = field(default_factory=list)
    """Error at the end of a life to Θ."""
    recovery_seconds: list[float] = field(default_factory=list)


class Life:
    """One query's life: many epochs, many kills.

    Args:
        root: A directory for its arenas and backups.
        divergence: "l1" or "max".
        theta: Θ.
        seed: Of rows and kills.
        tally: Where to count.
    """

    def __init__(self, root: Path, divergence: str, theta: float, seed: int, tally: Tally) -> None:
        self._root, self._divergence, self._tally = root, divergence, tally
        self._random, self._rows = random.Random(seed), np.random.default_rng(seed)
        self._policy = tether.Approximate(theta)
        whole = divergence == "max"  # the worst key counts, and no two slots share one
        self._placement = Placement(copies=1 if whole else SLOTS)
        self._ledger = Ledger(NAME, SLOTS, self._policy, self._placement)
        self._address = StoreAddress(url=str(root / "backup"))
        self._store = self._address.open()
        self._blob = pickle.dumps(KeyCounts(divergence))
        self._lineages: dict[Slot, Lineage] = {}
        self._log_end: LogEnd | None = None
        self._processes: dict[int, tuple[Any, Connection]] = {}
        self._usual = 0.02  # seconds an epoch takes; learned

    def live(self, kills_per_epoch: float) -> None:
        """Run all epochs, killing on the way."""
        truth: list[Counter[int]] = [Counter() for _ in range(SLOTS)]
        with self._store.lock("bench"):
            for epoch in map(Epoch, range(EPOCHS)):
                keys = (KEYS * self._rows.random(ROWS) ** 3).astype(np.int64)
                mine = [keys[keys % SLOTS == slot] for slot in range(SLOTS)]
                done = {s: self._run(s, epoch, mine[s], kills_per_epoch) for s in each_slot(SLOTS)}
                self._commit(epoch, {slot: status for slot, (status, _) in done.items()})
                for slot in range(SLOTS):
                    truth[slot].update(mine[slot].tolist())
                self._compare(epoch, truth, [state for _, state in done.values()])
        for process, _ in self._processes.values():
            kill(process.pid)
            process.join()

    def _run(
        self, slot: Slot, epoch: Epoch, keys: np.ndarray, kills_per_epoch: float
    ) -> tuple[SlotStatus, dict[int, int]]:
        """Let a slot run an epoch, again and again until it has reported; it may die after that."""
        while True:
            process, pipe = self._process(slot)
            pipe.send((self._program(epoch), keys))
            doomed = epoch > 0 and self._random.random() < kills_per_epoch
            moment = self._random.uniform(0, 1.6 * self._usual)
            began = time.perf_counter()
            answer = None
            if pipe.poll(moment if doomed else 60):
                answer = pipe.recv()
                took = time.perf_counter() - began
                self._usual = 0.9 * self._usual + 0.1 * took
                if doomed:
                    time.sleep(max(0.0, moment - took))
            if doomed:
                kill(process.pid)
                process.join()
                del self._processes[slot]
                self._tally.kills += 1
                self._tally.mid_epoch += answer is None
            if answer is not None:
                return answer

    def _process(self, slot: int) -> tuple[Any, Connection]:
        if slot not in self._processes:
            ours, theirs = multiprocessing.Pipe()
            context = multiprocessing.get_context("fork")  # a new one in milliseconds
            process = context.Process(target=serve, args=(slot, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes[slot] = process, ours
        return self._processes[slot]

    def _program(self, epoch: Epoch) -> Program:
        control = SlotControl(
            query="kills",
            run="bench",
            operator=NAME,
            slots=SLOTS,
            epoch=epoch,
            first_epoch=Epoch(0),
            fingerprint="bench",
            lineages=self._lineages,
            arena_scope="executor",
            arena_dir=str(self._root / "arena"),
            log_end=self._log_end,
        )
        return Program(
            control=control,
            operator=self._blob,
            policy=self._policy,
            placement=self._placement,
            store=self._address,
            output_schema=pa.schema([("k", pa.int64()), ("n", pa.int64())]),
        )

    def _commit(self, epoch: Epoch, statuses: dict[Slot, SlotStatus]) -> None:
        news = {
            f"{NAME}/{slot}": slot_commit(status)
            for slot, status in statuses.items()
            if status.frame or status.recovery
        }
        if news:
            record = CommitRecord(epoch=epoch, run="bench", slots=news)
            self._log_end = self._store.append_commit(record)
        self._ledger.note(statuses)
        for slot, status in statuses.items():
            if status.lineage != GENESIS:
                self._lineages[slot] = status.lineage
            if status.recovery is not None:
                self._tally.losses += not status.recovery.exact
                self._tally.exact_recoveries += status.recovery.exact
                self._tally.recovery_seconds.append(sum(status.recovery.seconds.values()))

    def _compare(self, epoch: int, truth: list[Counter[int]], states: list[dict[int, int]]) -> None:
        off = [
            abs(truth[slot][key] - states[slot].get(key, 0))
            for slot in range(SLOTS)
            for key in truth[slot]
        ]
        error = float(sum(off) if self._divergence == "l1" else max(off))
        bound = self._ledger.bound()
        self._tally.compared += 1
        self._tally.violations += error > bound.spent or bound.spent > bound.promised
        if bound.spent:
            self._tally.to_spent.append(error / bound.spent)
        if epoch == EPOCHS - 1:
            self._tally.items_lost += sum(off)
            self._tally.to_promised.append(error / bound.promised)


def serve(slot: Slot, pipe: Connection) -> None:
    """A slot's process: an executor and its Python worker in one. Ends when it is killed."""
    me = Owner.of(os.getpid())
    while True:
        try:
            program, keys = pipe.recv()
        except EOFError:
            return
        work = SlotEpoch(program, slot, uuid.uuid4().hex, ArenaHost(me))
        for _ in work.run(iter([pa.RecordBatch.from_pydict({"k": keys})])):
            pass
        with attached(program, ResidentId(slot), me) as resident:
            seen = resident.state["seen"]
            assert isinstance(seen, Table)
            rows = [batch.to_pydict() for batch in seen.batches()]
        state = {k: n for row in rows for k, n in zip(row["k"], row["n"], strict=True)}
        pipe.send((work.status, state))


def kill_many(root: Path, *, kills: int, seed: int) -> Tally:
    """Lives with both divergences and several bounds, until a number of kills have struck."""
    tally, number = Tally(), 0
    while tally.kills < kills:
        divergence, theta = [("l1", 4_000.0), ("max", 60.0), ("l1", 800.0)][number % 3]
        Life(root / str(number), divergence, theta, seed + number, tally).live(0.35)
        number += 1
    return tally
