"""The door: ``tether.stream(df).apply(operator, key=[...]).start(...)``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.backup.opening import StoreAddress
from tether.core.approximate import Approximate
from tether.core.errors import BadValueError, QueryRefusedError
from tether.core.no_tolerance import NoTolerance
from tether.operator import Operator
from tether.spark.batch import batch_answer
from tether.spark.prepared import prepare
from tether.spark.query import Query, start_query
from tether.spark.session import check_session
from tether.spark.sinks import Sink, as_sink, discard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from tether.core.policy import Policy
    from tether.spark.control import ArenaScope
    from tether.spark.faults import Fault


class Stream:
    """Rows of a DataFrame, streaming or static, on their way to an operator."""

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows

    def apply(
        self,
        operator: Operator,
        *,
        key: str | Sequence[str] = (),
        parallelism: int | None = None,
    ) -> Applied:
        """Send the rows through an operator.

        Args:
            operator: The user's operator.
            key: Columns that say which rows belong together: rows of equal key meet in one slot.
                Without a key, rows are spread by their value.
            parallelism: Number of slots; by default Spark's default parallelism. It is fixed for the
                life of a backup.
        """
        if not isinstance(operator, Operator):
            raise BadValueError(
                f"apply() was given {operator!r}.",
                why="It takes an instance of a subclass of tether.Operator.",
                do="Pass MyOperator(), with the parentheses.",
            )
        session = self._rows.sparkSession
        slots = parallelism if parallelism is not None else session.sparkContext.defaultParallelism
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise BadValueError(
                f"parallelism={slots!r} is not a number of slots.",
                do="Pass a whole number above 0.",
            )
        columns = [key] if isinstance(key, str) else list(key)
        return Applied(self._rows, operator, columns, slots)


class Applied:
    """A query that is described, but not started."""

    def __init__(self, rows: DataFrame, operator: Operator, key: list[str], slots: int) -> None:
        self._rows, self._operator, self._key, self._slots = rows, operator, key, slots

    def to_df(self) -> DataFrame:
        """The batch form: the same operator over a static DataFrame, as one epoch.

        It is the reference answer of a stream over the same rows. State is in the tasks' own memory,
        and nothing is backed up; Spark runs it again as often as it likes.
        """
        if self._rows.isStreaming:
            raise BadValueError(
                "to_df() was called on a stream.",
                why="A stream has no end, so it has no single answer.",
                do="Call start(), or read the same data with spark.read instead of spark.readStream.",
            )
        return batch_answer(
            prepare(
                self._rows,
                self._operator,
                self._key,
                self._slots,
                policy=NoTolerance(),
                sink=discard,
                store_address=None,
            )
        )

    def start(
        self,
        output: Sink | str | None = None,
        *,
        tolerance: Policy | None = None,
        backup: str | None = None,
        backup_options: Mapping[str, Any] | None = None,
        checkpoint: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        arena_scope: ArenaScope = "node",
        arena_dir: str | None = None,
        allow_changed: Sequence[str] = (),
        faults: Sequence[Fault] = (),
    ) -> Query:
        """Start the stream.

        Args:
            output: A function ``(df, epoch)``, a format's name, ``tether.to_format(...)``, or None.
            tolerance: The policy; by default no tolerance at all.
            backup: Directory or URL (``s3://…``, ``hdfs://…``) of the backup store.
            backup_options: Options of the store's file system, as fsspec takes them.
            checkpoint: Spark's checkpoint directory: where it is in the source. Without one the
                query cannot be started again where it stopped.
            trigger: As for Spark's ``writeStream.trigger``, for example ``{"availableNow": True}``.
            name: Name of the query in Spark.
            arena_scope: "node": resident state outlives an executor that is restarted on its node.
                "executor": it dies with the executor.
            arena_dir: Where resident state is kept; by default in memory, /dev/shm.
            allow_changed: Parts of the program ("program", "policy") that may differ from what the
                backup was written with.
            faults: Failures on purpose, for tests and drills.

        Returns:
            A handle with the habits of Spark's ``StreamingQuery``, and ``bound()`` and ``story()``.
        """
        if not self._rows.isStreaming:
            raise BadValueError(
                "start() was called on a static DataFrame.",
                do="Call to_df() for its answer, or read the data with spark.readStream.",
            )
        check_session(self._rows.sparkSession)
        policy = tolerance if tolerance is not None else NoTolerance()
        if arena_scope not in ("node", "executor"):
            raise BadValueError(
                f"arena_scope={arena_scope!r} is not known.", do='Use "node" or "executor".'
            )
        _check_window(policy)
        if policy.keeps_backups and backup is None:
            raise QueryRefusedError(
                f"The policy {policy.name} needs a place for backups, and none was given.",
                do="Pass backup='some/directory' to start().",
            )
        address = None
        if policy.keeps_backups and backup is not None:
            # Executors have working directories of their own.
            url = backup if ":" in backup else str(Path(backup).absolute())
            address = StoreAddress(url=url, storage_options=dict(backup_options or {}))
        prepared = prepare(
            self._rows,
            self._operator,
            self._key,
            self._slots,
            policy=policy,
            sink=as_sink(output),
            store_address=address,
            arena_scope=arena_scope,
            arena_dir=arena_dir,
            allow_changed=tuple(allow_changed),
            faults=tuple(faults),
        )
        where = checkpoint or tempfile.mkdtemp(prefix="tether-checkpoint-")
        return start_query(
            prepared, where, dict(trigger or {}), name, keeps_checkpoint=bool(checkpoint)
        )


def _check_window(policy: Policy) -> None:
    """Refuse windows: the runtime does not tell the policy where they end yet."""
    window = policy.window if isinstance(policy, Approximate) else None
    if window is not None:
        raise QueryRefusedError(
            f"The window {window} is not followed by a query yet.",
            why="The policy knows windows, but a query does not tell it where they end.",
            do="Leave the window out: the bound then holds for the whole life of the stream.",
        )


def stream(rows: DataFrame) -> Stream:
    """Begin a Tether query on any DataFrame, streaming or static.

    Args:
        rows: What Spark reads; any DataFrame steps before this are Spark's own.
    """
    return Stream(rows)


__all__ = ["Applied", "Stream", "stream"]
