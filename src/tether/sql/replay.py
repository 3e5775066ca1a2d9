"""Exact instead of bounded: go back to versions that all partitions have, and read again from there."""

from __future__ import annotations

import re
import uuid
from typing import Any

import msgspec

from tether.core.errors import BackupError, BadValueError
from tether.sql.checkpoint import BACKUP, is_checkpoint, open_checkpoint
from tether.sql.checkpoints import settle_checkpoints

ATTEMPT = re.compile(r"\d+-(\d+)-[0-9a-f]+.*\.(?:delta|snapshot|rewound)")


class Rewound(msgspec.Struct, frozen=True, kw_only=True):
    """The point at which a query will continue."""

    batch: int
    """The batch that runs next, from state that all stores have exactly."""
    batches_again: int
    """Batches whose input is read again."""


def rewind(checkpoint: str, **options: Any) -> Rewound:
    """Set a stopped query back to the newest batch from which its state is exact.

    Intuition: a query that starts again has lost what was in memory only. Where its source can be
    read again (files, Kafka within its retention), nothing needs to be lost: take the newest version
    that *every* partition has as a backup, forget what came after it, and let Spark read the input of
    those batches again. Such versions exist where the query ran with ``replay_every``, or with Θ = 0.

    Guarantee: the state is then that of a run without failures, and no loss is counted. Output of the
    batches that are run again is given out again: the sink must put up with that. Batches may be cut
    differently. After a query that ended in good order there is nothing to read again.

    The query must not be running. Call it before the query starts again: a start that has already
    restored its state with a loss has counted it.

    Args:
        checkpoint: The query's checkpoint directory or URL.
        options: Options of the file system.

    Raises:
        BadValueError: It is no checkpoint of a stateful query.
        BackupError: There is no version that all partitions have.
    """
    settle_checkpoints()
    if not is_checkpoint(checkpoint, **options):
        raise BadValueError(
            f"{checkpoint} is no checkpoint of a stateful query.",
            why="It has no folders offsets and state.",
            do="Give the directory that the query has as its checkpointLocation.",
        )
    fs, root = open_checkpoint(checkpoint, **options)
    offsets, commits = (_numbers(fs, f"{root}/{log}") for log in ("offsets", "commits"))
    backups = _backups(fs, f"{root}/state")
    # The state of version v is what batch v begins with. Its input is in the log, or is yet to be found.
    common = set.intersection(*backups.values()) if backups else set()
    usable = common & {*offsets, max(commits, default=-1) + 1}
    if not usable:
        raise BackupError(
            "There is no version that all partitions have as a backup.",
            why="Partitions back up when they themselves have drifted too far, each at its own time.",
            do="Run with tether.sql.bounded(..., replay_every=N); or go on with the bounded loss.",
        )
    batch = max(usable)
    for number in commits:
        if number >= batch:
            _remove(fs, f"{root}/commits/{number}")
    for number in offsets:
        if number > batch:
            _remove(fs, f"{root}/offsets/{number}")
    # Backups of versions that are written again, maybe from other batches, must not be found again.
    for file in fs.find(f"{root}/state"):
        name = BACKUP.fullmatch(file.rpartition("/")[2])
        if name and int(name[1]) > batch:
            fs.rm_file(file)
    # A store that still lives in some executor must not write there what it has in memory.
    for store in backups:
        _mark(fs, store, batch)
    return Rewound(batch=batch, batches_again=max(commits, default=batch - 1) + 1 - batch)


def _numbers(fs: Any, folder: str) -> list[int]:
    try:
        names = [entry.rpartition("/")[2] for entry in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        return []
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def _backups(fs: Any, folder: str) -> dict[str, set[int]]:
    """Versions of the backups of each store."""
    found: dict[str, set[int]] = {}
    for file in fs.find(folder):
        store, _, name = file.rpartition("/")
        if name.endswith(".terms"):
            found.setdefault(store, set())
        elif matched := BACKUP.fullmatch(name):
            found.setdefault(store, set()).add(int(matched[1]))
    return found


def _mark(fs: Any, store: str, batch: int) -> None:
    names = [ATTEMPT.match(entry.rpartition("/")[2]) for entry in fs.ls(store, detail=False)]
    attempt = max((int(name[1]) for name in names if name), default=0) + 1
    fs.touch(f"{store}/{batch:012}-{attempt:04}-{uuid.uuid4().hex[:12]}.rewound")


def _remove(fs: Any, path: str) -> None:
    folder, _, name = path.rpartition("/")
    fs.rm_file(path)
    if fs.exists(f"{folder}/.{name}.crc"):
        fs.rm_file(f"{folder}/.{name}.crc")
