"""A query with every question answered that can be answered before it starts."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tether.backup.manifest import Manifest, check_manifest
from tether.core.errors import BadValueError, QueryRefusedError
from tether.spark.placement import placement_of
from tether.state.slot import SlotState
from tether.state.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from tether.backup.opening import StoreAddress
    from tether.backup.protocol import BackupStore
    from tether.core.policy import Placement, Policy
    from tether.operator import Operator
    from tether.spark.control import ArenaScope
    from tether.spark.faults import Fault
    from tether.spark.sinks import Sink


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One operator on one input, with its policy, stores and sink."""

    input: DataFrame
    operator: Operator
    operator_blob: bytes
    key: list[str]
    slots: int
    policy: Policy
    placement: Placement
    sink: Sink
    output_spark: StructType
    output_arrow: pa.Schema
    state_specs: dict[str, Any]
    store_address: StoreAddress | None
    arena_scope: ArenaScope
    arena_dir: str | None
    allow_changed: tuple[str, ...]
    faults: tuple[Fault, ...]

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What the stored state means, in the parts that a manifest compares."""
        operator = self.operator
        key_types = {name: self.input.schema[name].dataType.simpleString() for name in self.key}
        return {
            "program": {
                "operator": operator.name,
                "version": operator.version,
                "parameters": dict(operator.parameters()),
            },
            "state": self.state_specs,
            "slots": {operator.name: self.slots},
            "policy": dict(self.policy.describe()),
            "keys": key_types,
        }

    @property
    def digest(self) -> str:
        """Names the program in arenas: those of another one are refused."""
        parts = {name: part for name, part in self.fingerprint.items() if name != "policy"}
        parts["tracked"] = self.policy.keeps_backups
        return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()

    def combine(self) -> list[Column] | None:
        """Aggregates for Spark to fold an epoch's rows with, or None."""
        return self.operator.combine()

    def table_schema(self, name: str) -> pa.Schema:
        """Schema in which a table of the state is shown: its key columns, then its values.

        Spark has no unsigned bytes, so flags are shown as 16-bit numbers.

        Raises:
            BadValueError: The operator has no such table.
        """
        if name not in self.state_specs or self.state_specs[name]["kind"] != Table.kind:
            raise BadValueError(
                f"The operator has no table {name!r}.",
                why=f"Its states are {', '.join(self.state_specs) or 'none'}.",
            )
        table = declared_state(self.operator)[name]
        assert isinstance(table, Table)
        shown = [
            field.with_type(pa.int16()) if field.type == pa.uint8() else field
            for field in table.schema
        ]
        return pa.schema(shown)

    def check_program(self, store: BackupStore) -> None:
        """Refuse a store that holds the state of another program.

        Raises:
            ChangedProgramError: Says what changed and what to do.
        """
        manifest = store.read_manifest()
        if manifest is not None:
            check_manifest(manifest, self.fingerprint, self.allow_changed)

    def bind(self, query_id: str, epoch: int, store: BackupStore | None) -> int:
        """Tie the store to the query, or check that it is tied to it; give its first epoch.

        Raises:
            QueryRefusedError: The checkpoint and the backup are not of one query.
        """
        if store is None:
            return 0
        manifest = store.read_manifest()
        if manifest is None:
            if epoch != 0:
                raise QueryRefusedError(
                    f"The backup is empty, but Spark's checkpoint is at epoch {epoch}.",
                    why="State of the epochs before is in neither, so no bound could be given.",
                    do="Use the backup directory that belongs to this checkpoint, or a new "
                    "checkpoint directory.",
                )
            fingerprint = self.fingerprint
            store.write_manifest(
                Manifest.new(query_id=query_id, first_epoch=epoch, fingerprint=fingerprint)
            )
            return epoch
        if manifest.query_id != query_id:
            raise QueryRefusedError(
                "The backup belongs to another query.",
                why=f"It was begun by query {manifest.query_id}, and this one is {query_id}. A query "
                "is named by its checkpoint directory.",
                do="Use the checkpoint that belongs to this backup, or a new backup directory.",
            )
        if self.allow_changed:
            store.write_manifest(msgspec.structs.replace(manifest, fingerprint=self.fingerprint))
        return manifest.first_epoch


def declared_state(operator: Operator) -> SlotState:
    """Run ``setup`` once on throw-away memory: it tells the schema, and whether it works at all."""
    state = SlotState.heap()
    operator.setup(state)
    return state


def output_types(operator: Operator) -> tuple[StructType, pa.Schema]:
    """The operator's output schema for Spark and for Arrow."""
    declared = operator.output
    spark_schema = declared if isinstance(declared, StructType) else StructType.fromDDL(declared)
    return spark_schema, to_arrow_schema(spark_schema, timezone="UTC")


def check_key(key: list[str], schema: StructType) -> None:
    """Refuse keys that are not columns, or that Spark would not group by value.

    Raises:
        BadValueError: Says which column, and what the input has.
    """
    for name in key:
        if name not in schema.names:
            raise BadValueError(
                f"The key column {name!r} is not in the input.",
                why=f"The input has the columns {schema.names}.",
                do="Name columns of the DataFrame given to tether.stream().",
            )
        kind = schema[name].dataType.simpleString()
        if kind.startswith(("map", "variant")) or "collate" in kind:
            raise BadValueError(
                f"The key column {name!r} has type {kind}.",
                why="Values of this type that Spark calls equal need not be equal byte by byte.",
                do="Make a key of plain columns first, for example with to_json() or lower().",
            )


def prepare(
    rows: DataFrame,
    operator: Operator,
    key: list[str],
    slots: int,
    *,
    policy: Policy,
    sink: Sink,
    store_address: StoreAddress | None,
    arena_scope: ArenaScope = "node",
    arena_dir: str | None = None,
    allow_changed: tuple[str, ...] = (),
    faults: tuple[Fault, ...] = (),
) -> Prepared:
    """Check everything that can be checked before an epoch runs."""
    check_key(key, rows.schema)
    operator = copy.copy(operator)  # one instance may serve several queries
    operator.bind(rows.schema, key)
    blob = CloudPickleSerializer().dumps(operator)
    state = declared_state(operator)
    output_spark, output_arrow = output_types(operator)
    return Prepared(
        input=rows,
        operator=operator,
        operator_blob=blob,
        key=key,
        slots=slots,
        policy=policy,
        placement=placement_of(slots, state),
        sink=sink,
        output_spark=output_spark,
        output_arrow=output_arrow,
        state_specs=state.specs(),
        store_address=store_address,
        arena_scope=arena_scope,
        arena_dir=arena_dir,
        allow_changed=allow_changed,
        faults=faults,
    )
