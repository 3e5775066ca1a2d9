"""A driver for one slot: it does what the query's driver does, without Spark.

What it decides (whether an epoch leaves a record, what the books say) is decided by the runtime's own
code. It can die at any moment: ``restart`` makes a new one that knows only what is durable.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import uuid
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from tether.backup.commits import CommitRecord
from tether.backup.opening import StoreAddress
from tether.core.ids import GENESIS
from tether.core.placement import Placement
from tether.engine.messages import SlotControl
from tether.engine.query.commit_entries import InForce, has_news, slot_commit
from tether.engine.query.ledger import Ledger
from tether.engine.slot.beside import SlotBesideEpochs
from tether.engine.slot.epoch import SlotEpoch
from tether.engine.slot.program import Program
from tether.engine.slot.residents import ArenaHost, _kept, attached
from tether.operator import Operator
from tether.state.identity import Owner

if TYPE_CHECKING:
    from pathlib import Path

    from tether.backup.commitcodec import LogEnd
    from tether.backup.history import CommitHistory

OUTPUT = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class Count(Operator):
    output = "k long, n long"

    def setup(self, state):
        self.seen = state.table("seen", {"k": pa.int64()}, {"n": "int64"})

    def process(self, batch, out):
        self.seen.add(batch, n=1)

    def on_epoch_end(self, out):
        out.emit(self.seen.rows_to_batch(self.seen.changed()))


class Harness:
    """Runs epochs of one slot of an operator, commits them, and keeps its books.

    Args:
        policy: The slot's.
        root: Where arenas and backups are.
        operator: Counts keys by default.
    """

    def __init__(self, policy: Any, root: Path, operator: Operator | None = None) -> None:
        self.root = root
        self.address = StoreAddress(url=str(root / "backup")) if policy.keeps_backups else None
        self.store = self.lock = None
        self.blob = pickle.dumps(operator or Count())
        self.committed = -1
        self.log_end: LogEnd | None = None
        self.turn = 0
        if self.address is not None:
            self.store = self.address.open()
            self.lock = self.store.lock("test")
        self.restart(policy)

    def restart(self, policy: Any = None) -> None:
        """A new driver, perhaps with another policy, takes over what is durable."""
        self.policy = self.policy if policy is None else policy
        self.run_id = uuid.uuid4().hex
        self.ledger = Ledger("count", 1, self.policy, Placement(copies=1), self.window)
        self.lineage: str | None = GENESIS
        self.recorded: InForce | None = None
        epoch = self.committed + 1
        if self.store is None:
            if epoch > 0:
                self.ledger.resume_without_account()
                self.lineage = None
        elif epoch > 0:
            facts = self.history().slot_facts("count", 0, epoch)
            self.ledger.resume(self.history(), epoch)
            self.lineage = facts.lineage or GENESIS
            self.recorded = InForce(facts.theta, facts.under) if facts.epoch is not None else None

    @property
    def window(self):
        return getattr(self.policy, "window", None)

    def history(self) -> CommitHistory:
        return self.store.read_commits().history

    def close(self) -> None:
        if self.lock is not None:
            self.lock.release()
        # A worker keeps what it has attached; this process would keep that of every test.
        for directory, operator in [key for key in _kept if key[0].is_relative_to(self.root)]:
            del _kept[directory, operator]

    # ---- the slot ------------------------------------------------------------------------------

    def program(self, epoch, purpose="epoch", faults=()):
        control = SlotControl(
            query="q",
            run=self.run_id,
            operator="count",
            slots=1,
            epoch=epoch,
            first_epoch=0,
            fingerprint=f"tracked: {self.policy.keeps_backups}",
            lineages=None if self.lineage is None else {0: self.lineage},
            turn=self.turn,
            purpose=purpose,
            arena_dir=str(self.root / "arena"),
            log_end=self.log_end,
            divergences=self.ledger.divergences(epoch - 1),
        )
        return Program(
            control=control,
            operator=self.blob,
            policy=self.policy,
            placement=Placement(copies=1),
            store=self.address,
            output_schema=OUTPUT,
            faults=tuple(faults),
            window=self.window,
        )

    def run(self, epoch, batches, *, stop_after=None, faults=()):
        """Run the slot's task; ``stop_after`` batches of output it is dropped, as by ``limit``."""
        work = SlotEpoch(
            self.program(epoch, faults=faults),
            0,
            uuid.uuid4().hex,
            ArenaHost(Owner.of(os.getpid())),
        )
        rows = [pa.RecordBatch.from_pydict({"k": keys}) for keys in batches]
        stream = work.run(iter(rows))
        if stop_after is not None:
            next(stream, None)
            stream.close()
            return None
        self.output = [row for batch in stream for row in batch.to_pylist()]
        return work.status

    def read(self, epoch=None):
        """The rows of the operator's table, as ``query.table`` gives them."""
        program = self.program(self.committed if epoch is None else epoch, "read")
        program = dataclasses.replace(
            program, control=msgspec.structs.replace(program.control, read_table="seen")
        )
        work = SlotBesideEpochs(program, 0, uuid.uuid4().hex, ArenaHost(Owner.of(os.getpid())))
        return {row["k"]: row["n"] for batch in work.read() for row in batch.to_pylist()}

    def counts(self):
        """What the resident state counts now, whatever epoch it is at."""
        with attached(self.program(self.committed + 1), 0, Owner.of(os.getpid())) as resident:
            batches = resident.state["seen"].batches()
            return {row["k"]: row["n"] for batch in batches for row in batch.to_pylist()}

    def lose_state(self):
        """The node dies, or the executor of an executor-scoped arena."""
        shutil.rmtree(self.root / "arena", ignore_errors=True)

    # ---- commits -------------------------------------------------------------------------------

    def record(self, status):
        """Write the commit record, if there is anything to say; Spark may yet run the epoch again."""
        items = {"count/0": status.logged} if status.logged else {}
        news = has_news(self.policy, self.window, status, self.recorded)
        slots = {"count/0": slot_commit(status)} if news else {}
        known = self.history().last_epoch if self.store is not None else None
        rerun = known is not None and known >= status.epoch
        if self.store is not None and (slots or items or rerun):
            record = CommitRecord(epoch=status.epoch, run=self.run_id, slots=slots, items=items)
            self.store.append_commit(record)

    def commit(self, status):
        """Record the epoch, and let Spark commit it."""
        self.record(status)
        self.ledger.note({0: status})
        self.recorded = InForce(status.theta, status.under)
        self.lineage = status.lineage
        self.committed = status.epoch

    def epoch(self, batches):
        """Run and commit the next epoch; give its status."""
        status = self.run(self.committed + 1, batches)
        self.commit(status)
        self.turn += 1
        return status

    def flush(self):
        """Make all durable, as at the end of a query, as of the last committed epoch."""
        work = SlotBesideEpochs(
            self.program(self.committed, "flush"),
            0,
            uuid.uuid4().hex,
            ArenaHost(Owner.of(os.getpid())),
        )
        work.flush()
        if work.status is not None:
            slots = {"count/0": slot_commit(work.status)}
            record = CommitRecord(epoch=self.committed, run=self.run_id, slots=slots, amends=True)
            self.store.append_commit(record)
            self.ledger.note({0: work.status})
            self.lineage = work.status.lineage


class Told(Count):
    """Keeps what it is told of losses in its state, under keys below 0."""

    name = "count"

    def on_recover(self, loss):
        self.seen.put([[-loss.failures]], n=int(loss.bound))


def distance(one, other):
    return sum(abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys())
