"""Binds a backup store to a query and its program, or checks that it is bound to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tether.backup.manifest import Manifest, check_manifest
from tether.core.errors import QueryRefusedError
from tether.core.ids import Epoch
from tether.engine.operators import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.backup.protocol import BackupStore
    from tether.engine.operators import QueryOperator


def check_program(
    store: BackupStore, operators: Sequence[QueryOperator], allow_changed: Sequence[str]
) -> None:
    """Refuse a store that holds the state of another program.

    Raises:
        ChangedProgramError: Says what changed and what to do.
    """
    manifest = store.read_manifest()
    if manifest is not None:
        check_manifest(manifest, fingerprint(list(operators)), allow_changed)


def bind_store(
    operators: Sequence[QueryOperator],
    query_id: str,
    epoch: Epoch,
    store: BackupStore | None,
    allow_changed: Sequence[str],
) -> Epoch:
    """Bind the store to the query, or check that it is; return the query's first epoch.

    Raises:
        QueryRefusedError: The checkpoint and the backup are not of one query.
    """
    if store is None:
        return Epoch(0)
    manifest = store.read_manifest()
    program = fingerprint(list(operators))
    if manifest is None:
        if epoch != 0:
            raise QueryRefusedError(
                f"The backup is empty, but Spark's checkpoint is at epoch {epoch}.",
                why="State of the epochs before is in neither, so no bound could be given.",
                do="Use the backup directory that belongs to this checkpoint, or a new checkpoint "
                "directory.",
            )
        store.write_manifest(
            Manifest.new(query_id=query_id, first_epoch=epoch, fingerprint=program)
        )
        return epoch
    if manifest.query_id != query_id:
        raise QueryRefusedError(
            "The backup belongs to another query.",
            why=f"It was begun by query {manifest.query_id}, and this one is {query_id}. A query is "
            "named by its checkpoint directory.",
            do="Use the checkpoint that belongs to this backup, or a new backup directory.",
        )
    if allow_changed:
        # The number of slots is what the stored state says, not the program: see ``rescaling``.
        slots = manifest.fingerprint.get("slots", program["slots"])
        store.write_manifest(
            msgspec.structs.replace(manifest, fingerprint={**program, "slots": slots})
        )
    return manifest.first_epoch
