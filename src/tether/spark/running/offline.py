"""Changes the number of slots of a query that does not run, by dividing its backup.

The program is not needed, and need not be changed afterwards: see :mod:`tether.engine.query.rescaling`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tether.backup.audit import Expected
from tether.core.errors import BackupError, BadValueError, QueryRefusedError
from tether.core.ids import epoch_after
from tether.engine.query.commit_log import OpenCommitLog
from tether.engine.query.log_opening import open_log
from tether.engine.query.rescaling import Rescaling, UnfinishedError
from tether.engine.query.splitting import Stored, refusal
from tether.policies import recovery
from tether.sources.folding import spark_hash
from tether.spark.graph.plan import EpochPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from tether.backup.manifest import Manifest
    from tether.backup.protocol import BackupStore
    from tether.engine.query.splitting import Homes

_STRATEGIES = {
    one.name: one
    for one in (
        recovery.EMPTY,
        recovery.FROM_BACKUP,
        recovery.LAST_EPOCH,
        recovery.REPLAY,
        recovery.FROM_SNAPSHOT,
    )
}


class Moved(NamedTuple):
    """What was done."""

    operator: str
    before: int
    after: int
    next_epoch: int
    """The epoch that the query runs next."""


def rescale_store(
    store: BackupStore,
    operator: str,
    slots: int,
    homes: Callable[[Mapping[str, Mapping[str, str]]], Homes],
) -> Moved:
    """Give an operator of a stopped query another number of slots, in its backup.

    Args:
        store: The query's backup; nobody else may hold its lock.
        operator: Name of the operator.
        slots: The new number of slots.
        homes: Makes of the types of keys, by operator, what knows the slot of a key.

    Raises:
        BadValueError: There is no such operator, or that is no number of slots.
        ChangedProgramError: Its state cannot be divided, or is not whole.
        BackupLockedError: The query is running.
    """
    if slots < 1:
        raise BadValueError(f"{slots} is no number of slots.", do="Give a whole number above 0.")
    lock = store.lock("tether rescale")
    try:
        manifest = _manifest(store, operator)
        return _rescale(store, manifest, operator, slots, homes(manifest.fingerprint["keys"]))
    finally:
        lock.release()


def _manifest(store: BackupStore, operator: str) -> Manifest:
    manifest = store.read_manifest()
    if manifest is None:
        raise BackupError(
            "There is no backup here.",
            why="A directory in which a query has begun has a manifest.",
            do="Give the directory that was passed to start() as backup.",
        )
    names = manifest.fingerprint.get("slots", {})
    if operator not in names:
        raise BadValueError(
            f"The backup has no operator {operator!r}.",
            why=f"Its operators are {', '.join(sorted(names)) or 'none'}.",
            do="Name one of them.",
        )
    if operator not in manifest.operators:
        raise QueryRefusedError(
            f"The state of {operator!r} cannot be divided while its program is not there.",
            why="The backup was last used by an earlier version of Tether, which did not say whether it "
            "can be divided by key.",
            do="Start the query once with this version, and stop it; or start it with another "
            "parallelism and allow_changed=['slots'].",
        )
    return manifest


def _rescale(
    store: BackupStore, manifest: Manifest, operator: str, slots: int, homes: Homes
) -> Moved:
    log = store.read_commits()
    last = log.history.last_epoch
    if last is None:
        raise QueryRefusedError(
            "The number of slots cannot be changed yet.",
            why="No epoch of the query has left a record.",
            do="Start it with the number that you want.",
        )
    epoch = epoch_after(last)
    operators = _operators(manifest)
    opened = open_log(
        store,
        log,
        [],
        [],
        Expected(next_epoch=epoch, first_epoch=manifest.first_epoch),
        every_epoch=log.history.every_epoch_from is not None,
        committed_epoch=last,
        accept_damage=False,
    )
    held = OpenCommitLog(store, log.history, opened.end)
    # The numbers as stored now: earlier commands count, and so does a start that died during one.
    known = Rescaling(operators, held, homes, manifest.query_id)
    there = {one.operator.name: one.before for one in known.changes()}
    before = there.get(operator, operators[operator].slots)
    operators = {
        name: replace(one, slots=slots if name == operator else there.get(name, one.slots))
        for name, one in operators.items()
    }
    rescaling = Rescaling(operators, held, homes, manifest.query_id)
    changes = rescaling.changes()
    rescaling.check(changes, epoch)
    for change in changes:
        if change.operator.recovery.logs_rows:
            raise refusal(
                change,
                "its rows are logged under terms that only its program can tell.",
                do=f"Start it with parallelism={slots} and allow_changed=['slots'].",
            )
    try:
        rescaling.move(changes, epoch, by_command=True)
    except UnfinishedError as error:
        raise (error.__cause__ or error) from None
    return Moved(operator, before, slots, epoch)


def _operators(manifest: Manifest) -> dict[str, Stored]:
    """The operators of a store, with the numbers of slots that their program says."""
    fingerprint = manifest.fingerprint
    return {
        name: Stored(
            name=name,
            slots=number,
            in_program=number,
            state_specs=fingerprint["state"][name],
            key_types=fingerprint["keys"][name],
            refused=manifest.operators[name].refused,
            recovery=_STRATEGIES[manifest.operators[name].recovery],
            senders=manifest.operators[name].senders,
            alike=manifest.operators[name].alike,
        )
        for name, number in fingerprint["slots"].items()
    }


class SparkHomes:
    """The slots of keys, by Spark's hash, without a query.

    Args:
        types: Spark's types of the keys, by operator.
        session: Opens a session, for types that only Spark itself can hash.
    """

    def __init__(
        self, types: Mapping[str, Mapping[str, str]], session: Callable[[], SparkSession]
    ) -> None:
        self._types, self._session = types, session

    def slots_of(self, operator: str, keys: pa.RecordBatch, slots: int) -> NDArray[np.int64]:
        """The slot of each key, if the operator had this number of slots."""
        types = self._types[operator]
        here = spark_hash.slots_of(keys, types, slots)
        if here is not None:
            return here
        return EpochPlan(list(types), slots, None, None).slots_of(self._session(), keys, types)
