"""The entry point: ``tether.stream(df).apply(operator, key=[...]).start(...)``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tether.backup.opening import StoreAddress
from tether.core.checks import amount
from tether.core.errors import BadValueError, QueryRefusedError
from tether.operator import Operator
from tether.policies.no_tolerance import NoTolerance
from tether.sources.sunion.columns import STABLE_BEFORE
from tether.spark.changes.outlet import outlet_for
from tether.spark.epoch_sink import numbered as with_numbers
from tether.spark.everyday.grouped import GroupedStream
from tether.spark.graph.batch import batch_answer
from tether.spark.graph.consistency import BSP
from tether.spark.graph.copying import check_copies
from tether.spark.graph.exactness import check_exact, readable_epochs
from tether.spark.graph.flow import Flow, Node, OperatorNode, SourceNode, StepNode, key_of
from tether.spark.graph.prepared import prepare
from tether.spark.graph.shape import topology_of_flow
from tether.spark.graph.subscribed import check_subscription
from tether.spark.graph.unusable import unusable
from tether.spark.places.pinning import has_one_executor
from tether.spark.running.workers import use_drivers_python
from tether.spark.session import check_session, refuse_connect
from tether.spark.sinks import Sink, as_sink, discard
from tether.spark.starting import start_query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from tether.chaos.faults import Fault
    from tether.core.windows import Window
    from tether.engine.messages import ArenaScope
    from tether.planning.topology import Partitioning, Topology
    from tether.policies.policy import Policy
    from tether.spark.graph.consistency import Consistency
    from tether.spark.query import Query


class Stream:
    """The rows that a source, DataFrame code or an operator produces.

    A stream is only a description: nothing runs before ``start`` or ``to_df``. One stream can be the
    input of several operators, and ``union`` makes one stream of several.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    # ---- the graph -----------------------------------------------------------------------------

    def apply(
        self,
        operator: Operator,
        *,
        key: str | Sequence[str] = (),
        parallelism: int | None = None,
        name: str | None = None,
        feedback_to: Stream | None = None,
        window: Window | None = None,
        event_time: str | None = None,
        lateness: float = 0.0,
        amplification: float | Mapping[str, float] | None = None,
    ) -> Stream:
        """Send the rows through an operator.

        Args:
            operator: The user's operator.
            key: Key columns: all rows with the same key go to the same slot (the paper's duplication by
                state). Without a key any row can go to any slot (duplication by data).
            parallelism: Number of slots; by default Spark's default parallelism. Another number at a
                restart needs ``start(allow_changed=["slots"])``; see docs/rescaling.md.
            name: Name in stories and backups; by default the operator's own name. Needed if a query
                contains the same operator twice.
            feedback_to: The stream of an earlier operator. In the next epoch it gets what this operator
                sends with ``out.feedback``.
            window: The part of the stream that an answer covers; by default the window of the policy.
                When a hopping window ends, ``on_window_end`` is called.
            event_time: Column with the time of a row, for windows by seconds.
            lateness: Seconds of event time to wait for late rows before a window ends.
            amplification: The most error that one unit of error in an earlier operator can cause in this
                one, including the effect of DataFrame code between the two. One number for all earlier
                operators, or a number by operator name (also for feedback). By default what
                ``Operator.amplification`` returns, or ``math.inf`` if there is DataFrame code between.
        """
        if not isinstance(operator, Operator):
            raise BadValueError(
                f"apply() was given {operator!r}.",
                why="It takes an instance of a subclass of tether.Operator.",
                do="Pass MyOperator(), with the parentheses.",
            )
        target = None if feedback_to is None else feedback_to._node
        if target is not None and not isinstance(target, OperatorNode):
            raise BadValueError(
                "feedback_to was given a stream that is not an operator's.",
                do="Pass what apply() returned for the operator that is to get the feedback.",
            )
        return Stream(
            OperatorNode(
                (self._node,),
                operator=operator,
                name=name or operator.name,
                key=[key] if isinstance(key, str) else list(key),
                slots=self._slots(parallelism),
                feedback_to=target,
                window=window,
                event_time=event_time,
                lateness=amount("lateness", lateness, unit="seconds", zero="none", infinite=None),
                amplification=amplification,
            )
        )

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Apply stateless DataFrame code to the rows of each epoch.

        Args:
            function: Takes a DataFrame and returns one, with the same columns in every epoch.
        """
        return Stream(StepNode((self._node,), function))

    def groupBy(self, *columns: str | Column) -> GroupedStream:  # noqa: N802 - Spark's name
        """Common aggregates, written as in Spark: ``groupBy("page").agg(F.count("*"), F.sum("n"))``.

        Works only directly on ``tether.stream(…)``, because only there the columns are known. See
        docs/everyday.md.

        Args:
            columns: Columns to group by; one may be ``F.window(time, length)``.
        """
        if not isinstance(self._node, SourceNode):
            raise BadValueError(
                "groupBy() was called behind other steps.",
                why="The columns and the watermark are known only of what tether.stream() was given.",
                do="Do such steps in Spark first, or use apply(KeyedAggregate(…), key=…).",
            )
        return GroupedStream(self, self._node.rows, columns)

    def set_aside(self, *columns: str, nulls: bool = False) -> tuple[Stream, Stream]:
        """Split these rows in two streams: rows that can be used, and rows that cannot.

        A row goes to the second stream if one of the columns is NaN or infinite. Give that stream its
        own output with ``start(…, also=[(aside, tether.to_epochs("bad-rows"))])``.

        Args:
            columns: Numeric columns to check.
            nulls: Whether a row with a null in one of them goes to the second stream, too.
        """
        if not columns:
            raise BadValueError(
                "set_aside() was given no column.", do="Name the columns of numbers to look at."
            )
        names = list(columns)
        return (
            self.transform(lambda rows: rows.where(~unusable(rows, names, nulls=nulls))),
            self.transform(lambda rows: rows.where(unusable(rows, names, nulls=nulls))),
        )

    def union(self, *others: Stream) -> Stream:
        """One stream with the rows of this one and of others that have the same columns."""

        def unite(first: DataFrame, *rest: DataFrame) -> DataFrame:
            for rows in rest:
                first = first.unionByName(rows)
            return first

        parents = (self._node, *(other._node for other in others))
        return Stream(StepNode(parents, unite, regroups=True))

    def _slots(self, parallelism: int | None) -> int:
        source = next(iter(_sources(self._node)))
        slots = parallelism
        if slots is None:
            slots = source.rows.sparkSession.sparkContext.defaultParallelism
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise BadValueError(
                f"parallelism={slots!r} is not a number of slots.",
                do="Pass a whole number above 0.",
            )
        return slots

    # ---- running it ----------------------------------------------------------------------------

    def to_df(self) -> DataFrame:
        """The batch form: the same operators over static DataFrames, as one epoch.

        Its result is the correct answer for a stream of the same rows, if no operator depends on
        feedback. State is in the memory of the tasks, and nothing is backed up; Spark can run it again
        at any time.
        """
        if any(source.rows.isStreaming for source in Flow((self._node,)).sources):
            raise BadValueError(
                "to_df() was called on a stream.",
                why="A stream has no end, so it has no single answer.",
                do="Call start(), or read the same data with spark.read instead of spark.readStream.",
            )
        use_drivers_python(next(iter(_sources(self._node))).rows.sparkSession)
        query = prepare({self._node: discard}, policies=NoTolerance(), consistency=BSP())
        return batch_answer(query, self._node)

    def topology(
        self,
        rates: Mapping[str, float | Sequence[float]],
        *,
        also: Sequence[Stream] = (),
        correlated: Sequence[str] = (),
        partitionings: Mapping[tuple[str, str], Partitioning] | None = None,
    ) -> Topology:
        """The query that ends with this stream, as the planner of copies needs it (``tether.planning``).

        Args:
            rates: Output rows per second of each operator: one number for each slot, or one number for
                all slots. Required for operators that read the source.
            also: Other ends of the same query.
            correlated: Operators that join their inputs, in addition to those that declare it.
            partitionings: How rows are distributed between two operators, by the names of sender and
                receiver. By default every slot sends to every slot, as in a shuffle.
        """
        flow = Flow((self._node, *(stream._node for stream in also)))
        return topology_of_flow(flow, rates, correlated=correlated, partitionings=partitionings)

    def start(
        self,
        output: Sink | str | None = None,
        *,
        tolerance: Policy | Mapping[str, Policy] | None = None,
        backup: str | None = None,
        backup_options: Mapping[str, Any] | None = None,
        checkpoint: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        also: Sequence[tuple[Stream, Sink | str | None]] = (),
        consistency: Consistency | None = None,
        arena_scope: ArenaScope = "node",
        arena_dir: str | None = None,
        allow_changed: Sequence[str] = (),
        accept_damage: bool = False,
        faults: Sequence[Fault] = (),
        numbered: bool = False,
        ui: bool | Mapping[str, Any] = False,
        tentative: bool | Sequence[str] = False,
        fold_at_source: bool = True,
    ) -> Query:
        """Start the query that ends with this stream.

        Args:
            output: A function ``(df, epoch)``, a format's name, ``tether.to_format(...)``, or None.
            tolerance: One policy for all operators, which then share its budget, or a policy for each
                operator by name. By default there is no fault tolerance.
            backup: Directory or URL (``s3://…``, ``hdfs://…``) of the backup store.
            backup_options: Options for the store's file system, which are given to fsspec.
            checkpoint: Spark's checkpoint directory, which holds the position in the source. Without it
                a stopped query cannot be resumed.
            trigger: As for Spark's ``writeStream.trigger``, for example ``{"availableNow": True}``.
            name: Name of the query in Spark.
            also: Other ends of the same query, with their outputs.
            consistency: How many epochs the two sides of a feedback loop may be apart: ``BSP()`` (the
                default), ``SSP(s)`` or ``ASP()``.
            arena_scope: "node": resident state survives if an executor is restarted on the same node.
                "executor": it is lost with the executor.
            arena_dir: Where resident state is kept; by default in memory, /dev/shm.
            allow_changed: Parts of the program ("program", "policy", "slots") that may differ from what
                the backup was written with.
            accept_damage: Continue under an approximate policy even if commit records of the backup are
                missing; otherwise the query refuses to start. Slots that are restored from what is left
                then have an infinite bound.
            faults: Faults to inject, for tests and drills.
            numbered: Whether output rows get the columns ``__epoch`` and ``__row``: their epoch, and
                their number in it. With these a sink can store every row exactly once.
            ui: Whether to serve the live page and print its address; or options of ``tether.ui.serve``,
                for example ``{"port": 0}``. The page ends with the query.
            tentative: Whether outputs also get tentative rows and their corrections. Rows then have five
                more columns (``_change_type``, ``_commit_version``, ``_stability``, ``_epoch``,
                ``_fidelity``). Give the names of the columns that identify a row instead of ``True``,
                and each correction says which row it replaces. ``tether.to_changes`` and
                ``tether.to_memory`` always get them.
            fold_at_source: Whether rows of files are folded in Arrow where they are read, if that is
                known to give Spark's own answer; ``explain()`` tells. With False, Spark reads all
                rows. See docs/speed.md.

        Returns:
            A handle like Spark's ``StreamingQuery``, which also has ``bound()`` and ``story()``.
        """
        ends = {self._node: as_sink(output)}
        for stream_, sink in also:
            ends[stream_._node] = as_sink(sink)
        if numbered:
            ends = {node: with_numbers(sink, key_of(node)) for node, sink in ends.items()}
        where = checkpoint or tempfile.mkdtemp(prefix="tether-checkpoint-")
        ends = {
            node: outlet_for(sink, tentative, where, number)
            for number, (node, sink) in enumerate(ends.items())
        }
        sources = Flow(tuple(ends)).sources
        if not all(source.rows.isStreaming for source in sources):
            raise BadValueError(
                "start() was called on a static DataFrame.",
                do="Call to_df() for its answer, or read the data with spark.readStream.",
            )
        check_session(sources[0].rows.sparkSession)
        if arena_scope not in ("node", "executor"):
            raise BadValueError(
                f"arena_scope={arena_scope!r} is not known.", do='Use "node" or "executor".'
            )
        policies = tolerance if tolerance is not None else NoTolerance()
        keeping = _keeping(policies)
        if keeping is not None and backup is None:
            raise QueryRefusedError(
                f"The policy {keeping.name} needs a place for backups, and none was given.",
                do="Pass backup='some/directory' to start().",
            )
        address = None
        if keeping is not None and backup is not None:
            # Executors have working directories of their own.
            url = backup if ":" in backup else str(Path(backup).absolute())
            address = StoreAddress(url=url, storage_options=dict(backup_options or {}))
        query = prepare(
            ends,
            policies=policies,
            consistency=consistency or BSP(),
            store_address=address,
            arena_scope=arena_scope,
            arena_dir=arena_dir,
            allow_changed=tuple(allow_changed),
            accept_damage=accept_damage,
            faults=tuple(faults),
            readable_epochs=readable_epochs(sources[0].rows.sparkSession),
        )
        check_exact(query)
        check_subscription(query)
        session = sources[0].rows.sparkSession
        alone = has_one_executor(session) and not hasattr(session, "tether_places")
        check_copies(query.operators.values(), one_executor=alone)
        started = start_query(
            query,
            where,
            dict(trigger or {}),
            name,
            keeps_checkpoint=bool(checkpoint),
            fold_at_source=fold_at_source,
        )
        if ui or isinstance(ui, Mapping):
            started.serve_page(**(ui if isinstance(ui, Mapping) else {}))
        return started


def _keeping(policies: Policy | Mapping[str, Policy]) -> Policy | None:
    """A policy among these that keeps backups, if there is one."""
    among = list(policies.values()) if isinstance(policies, Mapping) else [policies]
    return next((policy for policy in among if policy.keeps_backups), None)


def _sources(node: Node) -> list[SourceNode]:
    if isinstance(node, SourceNode):
        return [node]
    return [source for parent in node.parents for source in _sources(parent)]


def stream(rows: DataFrame, *, replays: bool | None = None) -> Stream:
    """Begin a Tether query on any DataFrame, streaming or static.

    Args:
        rows: A DataFrame of Spark. Its steps run in Spark, as usual.
        replays: Whether its source can read the rows of an epoch again, as files and Kafka can. By
            default this is assumed of all sources except Spark's socket. If a source cannot, exact
            policies store the rows themselves, or refuse to start.
    """
    refuse_connect(rows.sparkSession)
    if rows.isStreaming and STABLE_BEFORE in rows.columns:
        raise QueryRefusedError(
            "An operator's state cannot take rows of two kinds.",
            why="They come from tether.subscribe with a delay: tentative rows, and later stable ones of "
            "the same buckets, which the state would hold twice.",
            do="Give subscribe() a tolerance, tether.Available(delay=…), instead of a delay, and "
            "start() the same; or subscribe without a delay; or keep stable rows only: "
            f"rows.where(\"_stability = 'stable'\").drop({STABLE_BEFORE!r}).",
        )
    return Stream(SourceNode(rows, replays=replays))


__all__ = ["Stream", "stream"]
