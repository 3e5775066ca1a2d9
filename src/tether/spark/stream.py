"""The door: ``tether.stream(df).apply(operator, key=[...]).start(...)``."""

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
from tether.spark.graph.flow import Flow, Node, OperatorNode, SourceNode, StepNode
from tether.spark.graph.prepared import prepare
from tether.spark.graph.shape import topology_of_flow
from tether.spark.graph.subscribed import check_subscription
from tether.spark.graph.unusable import unusable
from tether.spark.places.pinning import has_one_executor
from tether.spark.query import Query, start_query
from tether.spark.running.workers import use_drivers_python
from tether.spark.session import check_session, refuse_connect
from tether.spark.sinks import Sink, as_sink, discard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from tether.chaos.faults import Fault
    from tether.core.windows import Window
    from tether.engine.messages import ArenaScope
    from tether.planning.topology import Partitioning, Topology
    from tether.policies.policy import Policy
    from tether.spark.graph.consistency import Consistency


class Stream:
    """Rows on their way: of a source, of DataFrame code, or of an operator.

    Streams are descriptions; nothing runs before ``start`` or ``to_df``. One stream may feed several
    operators, and several streams may be united into one.
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
            key: Columns that say which rows belong together: rows of equal key meet in one slot (the
                paper's duplication by state). Without a key any slot takes any row: as they were
                read, or spread by their value (duplication by data).
            parallelism: Number of slots; by default Spark's default parallelism. Another number at a
                restart needs ``start(allow_changed=["slots"])``; see docs/rescaling.md.
            name: Name in stories and backups; by default the operator's own. Needed where a query
                has two of a kind.
            feedback_to: The stream of an operator further up that gets what this one sends with
                ``out.feedback``, in the next epoch.
            window: How much of the stream an answer covers. The end of a hopping one is told to
                ``on_window_end``. By default that of the policy.
            event_time: Column with the time of a row, for windows by seconds.
            lateness: Seconds of event time to wait for late rows before a window ends.
            amplification: Most error that one unit of error in an operator before this one, with the
                DataFrame code between, can bring into it: one number for all of them, or by name (for
                feedback too). By default what ``Operator.amplification`` says, and not known, thus
                ``math.inf``, where DataFrame code lies between.
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
        """Stateless DataFrame code: called with the rows of each epoch.

        Args:
            function: Takes a DataFrame and gives one, of the same columns in every epoch.
        """
        return Stream(StepNode((self._node,), function))

    def groupBy(self, *columns: str | Column) -> GroupedStream:  # noqa: N802 - Spark's name
        """Everyday aggregates, spelled as in Spark: ``groupBy("page").agg(F.count("*"), F.sum("n"))``.

        Only on what was given to ``tether.stream`` itself, whose columns are known. See
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
        """Part these rows in two: those that can be reckoned with, and those to keep aside.

        A row goes aside if one of the columns is NaN or infinite in it. Give the second stream an
        output of its own with ``start(…, also=[(aside, tether.to_epochs("bad-rows"))])``.

        Args:
            columns: Columns of numbers.
            nulls: Whether a null sends a row aside, too.
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
        """These rows and those of other streams with the same columns, as one stream."""

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

        It is the reference answer of a stream over the same rows, where operators do not depend on
        feedback. State is in the tasks' own memory, and nothing is backed up; Spark runs it again as
        often as it likes.
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
        """What a planner of copies sees of the query that ends here (``tether.planning``).

        Args:
            rates: Rows per second out of each operator's slots, one number for each slot or one for
                all; needed for operators that read the source.
            also: Further ends of the same query.
            correlated: Operators that join their inputs, beside those that say so themselves.
            partitionings: What is known of edges, by the names of sender and receiver. An edge is a
                shuffle, so by default every slot sends to every slot.
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
    ) -> Query:
        """Start the query that ends here.

        Args:
            output: A function ``(df, epoch)``, a format's name, ``tether.to_format(...)``, or None.
            tolerance: The policy of all operators, which then share its budget, or one for each by
                name; by default no tolerance at all.
            backup: Directory or URL (``s3://…``, ``hdfs://…``) of the backup store.
            backup_options: Options of the store's file system, as fsspec takes them.
            checkpoint: Spark's checkpoint directory: where it is in the source. Without one the
                query cannot be started again where it stopped.
            trigger: As for Spark's ``writeStream.trigger``, for example ``{"availableNow": True}``.
            name: Name of the query in Spark.
            also: Further ends of the same query, with their outputs.
            consistency: How far the ends of a feedback loop may drift apart: ``BSP()``, the default,
                ``SSP(s)`` or ``ASP()``.
            arena_scope: "node": resident state outlives an executor that is restarted on its node.
                "executor": it dies with the executor.
            arena_dir: Where resident state is kept; by default in memory, /dev/shm.
            allow_changed: Parts of the program ("program", "policy", "slots") that may differ from what
                the backup was written with.
            accept_damage: Go on under an approximate policy though commit records of the backup are
                missing, which is refused otherwise. Slots that are restored from what is left then
                have an infinite bound.
            faults: Failures on purpose, for tests and drills.
            numbered: Whether output rows carry their epoch and a number within it, in the columns
                ``__epoch`` and ``__row``: what a sink needs to have every row once.
            ui: Whether to serve the live page too, and print its address; or options of
                ``tether.ui.serve``, for example ``{"port": 0}``. It ends with the query.
            tentative: Whether outputs get tentative rows too, and their corrections: rows then say in
                five more columns what they are (``_change_type``, ``_commit_version``,
                ``_stability``, ``_epoch``, ``_fidelity``). Name the columns that tell rows apart
                instead of True, and a correction says which row it replaces. ``tether.to_changes``
                and ``tether.to_memory`` get them anyway.

        Returns:
            A handle with the habits of Spark's ``StreamingQuery``, and ``bound()`` and ``story()``.
        """
        ends = {self._node: as_sink(output)}
        for stream_, sink in also:
            ends[stream_._node] = as_sink(sink)
        if numbered:
            ends = {node: with_numbers(sink) for node, sink in ends.items()}
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
            query, where, dict(trigger or {}), name, keeps_checkpoint=bool(checkpoint)
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
        rows: What Spark reads; any DataFrame steps before this are Spark's own.
        replays: Whether its source gives the rows of an epoch again when they are asked for again,
            as files and Kafka do. By default all sources but Spark's socket are taken to. Of one
            that does not, exact policies keep the rows themselves, or refuse to start.
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
