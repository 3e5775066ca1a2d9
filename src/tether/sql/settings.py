"""One setting: a bound for the state of plain Spark SQL queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from tether.core.budget import Budget
from tether.core.checks import count
from tether.core.errors import BadValueError, QueryRefusedError
from tether.sql.jar import jar_path, without_spaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from pyspark.sql import SparkSession

Divergence = Literal["count", "l1", "l2", "max"]

PROVIDER = "tether.sql.BoundedStateStoreProvider"
EXTENSIONS = "org.apache.spark.sql.execution.streaming.state.TetherExtensions"
RUN_ENDS = "org.apache.spark.sql.execution.streaming.state.RunEnds"
LISTENER = RUN_ENDS + "Listener"
EXTENSIONS_CONF = "spark.sql.extensions"
PROVIDER_CLASS = "spark.sql.streaming.stateStore.providerClass"
PREFIX = "spark.sql.streaming.stateStore.tether."
SPARK = "4.3"
"""The state-store interfaces of Spark are internal; the jar is built against this release."""


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """How far the state of one stateful operator may be from what is durable.

    Args:
        max_state_error: Θ: the most that all failures together may cost, over all partitions of the
            operator, in units of the divergence. 0 is exact; ``math.inf`` never backs up.
        divergence: ``count`` of changed rows; or ``l1``, ``l2``, ``max`` of what numeric columns of
            the state's rows have changed by.
        columns: The columns to compare; empty: all numeric ones. Rows without any count 1.

    Example:
        >>> Bound(max_state_error=1000).settings()["maxStateError"]
        '1000.0'
        >>> Bound(max_state_error=1, columns=("sum",))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        tether.core.errors.BadValueError: columns=sum mean nothing for divergence='count'. Why: ...
    """

    max_state_error: float
    divergence: Divergence = "count"
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        Budget(max_state_error=self.max_state_error)  # says what is wrong with it
        if self.divergence not in get_args(Divergence):
            raise BadValueError(
                f"divergence={self.divergence!r} is not known.",
                why=f"Rows are compared by one of {', '.join(get_args(Divergence))}.",
                do="Choose one of these.",
            )
        if self.columns and self.divergence == "count":
            raise BadValueError(
                f"columns={', '.join(self.columns)} mean nothing for divergence='count'.",
                why="It counts changed rows, whatever has changed in them.",
                do="Leave columns out, or choose l1, l2 or max.",
            )

    def settings(self) -> dict[str, str]:
        """The settings that the store reads, without the prefix."""
        return {
            "maxStateError": str(float(self.max_state_error)),
            "divergence": self.divergence,
            "columns": ",".join(self.columns),
        }


class Bounded:
    """Settings that are in force; as a context manager, until its block ends.

    A streaming query copies its session's settings when it starts, so a block holds for the queries
    that are started in it, however long they run.
    """

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self._spark = spark
        self._before = {name: spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            spark.conf.set(name, value)

    def __enter__(self) -> Bounded:
        """Begin a block whose queries have this bound."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Set the session back to what it was."""
        self.undo()

    def undo(self) -> None:
        """Set the session back to what it was; running queries keep their bound."""
        for name, value in self._before.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)


def bounded(
    spark: SparkSession,
    max_state_error: float,
    divergence: Divergence = "count",
    columns: Sequence[str] = (),
    *,
    operators: Mapping[int, Bound] | None = None,
    replay_every: int | None = None,
) -> Bounded:
    """Give the stateful queries of a session a bounded-error state store.

    Intuition: state stays in memory and is made durable when it has drifted too far, not at every
    micro-batch. Guarantee: however many executors or drivers die, the state of each stateful operator
    is wrong by at most ``max_state_error`` (AF-Stream 2019 §3.5; each loss halves what is left).

    Holds for queries that are started from now on; in a ``with`` block, for those started in it.

    Args:
        spark: A session on Spark 4.3, running or new; or a client of a Spark Connect server that was
            started with ``server_settings``.
        max_state_error: Θ for each stateful operator, in units of the divergence; see ``Bound``.
        divergence: How rows are compared with their backups.
        columns: Numeric columns of the state's rows to compare.
        operators: A bound of its own for some operators, by number (as in ``stateOperators`` of a
            query's progress).
        replay_every: Every this many batches all partitions also back up, together, so that
            ``tether.sql.rewind`` finds versions to start again from, exactly.

    Example:
        ::

            with tether.sql.bounded(spark, max_state_error=10_000):
                query = events.groupBy("user").count().writeStream.start()
    """
    check_session(spark)
    settings = store_settings(
        Bound(max_state_error=max_state_error, divergence=divergence, columns=tuple(columns)),
        operators,
        replay_every,
    )
    add_to_session(spark)
    return Bounded(spark, settings)


def builder(
    session_builder: Any,
    max_state_error: float,
    divergence: Divergence = "count",
    columns: Sequence[str] = (),
    *,
    operators: Mapping[int, Bound] | None = None,
    replay_every: int | None = None,
) -> Any:
    """The same for a session that is yet to be made: ``builder(SparkSession.builder, …).getOrCreate()``.

    The only form for clusters whose executors must have the jar from the start.
    """
    bound = Bound(max_state_error=max_state_error, divergence=divergence, columns=tuple(columns))
    settings = store_settings(bound, operators, replay_every)
    known = getattr(session_builder, "_options", {})
    for name, value in _from_the_start().items():
        settings[name] = ",".join(filter(None, [known.get(name, ""), value]))
    for name, value in settings.items():
        session_builder = session_builder.config(name, value)
    return session_builder


def server_settings(
    max_state_error: float,
    divergence: Divergence = "count",
    columns: Sequence[str] = (),
    *,
    operators: Mapping[int, Bound] | None = None,
    replay_every: int | None = None,
) -> dict[str, str]:
    """What ``builder`` sets, for those who do not make the session themselves.

    For the server of Spark Connect, for ``spark-submit --conf``, for the configuration of a notebook's
    cluster. Where there are other jars, extensions or listeners, ours come after a comma.

    Args:
        max_state_error: Θ, as for ``bounded``; clients may change it for their queries.
        divergence: As for ``bounded``.
        columns: As for ``bounded``.
        operators: As for ``bounded``.
        replay_every: As for ``bounded``.

    Example:
        ::

            for name, value in tether.sql.server_settings(max_state_error=1000).items():
                print(f"--conf {name}={value}")
    """
    bound = Bound(max_state_error=max_state_error, divergence=divergence, columns=tuple(columns))
    return store_settings(bound, operators, replay_every) | _from_the_start()


def _from_the_start() -> dict[str, str]:
    """Settings that a session cannot get later."""
    return {
        "spark.jars": str(without_spaces(jar_path())),
        EXTENSIONS_CONF: EXTENSIONS,
        "spark.sql.streaming.streamingQueryListeners": LISTENER,
    }


def store_settings(
    bound: Bound, operators: Mapping[int, Bound] | None = None, replay_every: int | None = None
) -> dict[str, str]:
    """The settings of a session for a bound.

    Example:
        >>> found = store_settings(Bound(max_state_error=5), {1: Bound(max_state_error=0)})
        >>> found["spark.sql.streaming.stateStore.tether.operator.1.maxStateError"]
        '0.0'
    """
    settings = {PROVIDER_CLASS: PROVIDER}
    settings |= {PREFIX + name: value for name, value in bound.settings().items()}
    if replay_every is not None:
        every = count("replay_every", replay_every, unit="batches")
        settings[PREFIX + "alignedEvery"] = str(every)
    for number, own in (operators or {}).items():
        settings |= {f"{PREFIX}operator.{number}.{k}": v for k, v in own.settings().items()}
    return settings


def runs_on(version: str) -> bool:
    """Whether the jar is for a release of Spark.

    Example:
        >>> runs_on("4.3.0"), runs_on("4.30.0")
        (True, False)
    """
    return version == SPARK or version.startswith(f"{SPARK}.")


def check_session(spark: SparkSession) -> None:
    """Refuse a session on which the store cannot run.

    Raises:
        QueryRefusedError: Another Spark than 4.3, a server of Spark Connect that lacks the store, or
            speculative execution.
    """
    if not runs_on(spark.version):
        raise QueryRefusedError(
            f"Tether's state store does not run on Spark {spark.version}.",
            why=f"It is built against the state-store interfaces of Spark {SPARK}, which change.",
            do=f"Use Spark {SPARK}.",
        )
    if is_remote(spark) and EXTENSIONS not in (spark.conf.get(EXTENSIONS_CONF, None) or ""):
        raise QueryRefusedError(
            "This Spark Connect server does not have Tether's state store.",
            why="The jar must be given to the server when it starts, which a client cannot do.",
            do="Start the server with the settings of tether.sql.server_settings(...).",
        )
    if (spark.conf.get("spark.speculation", "false") or "false").lower() == "true":
        raise QueryRefusedError(
            "Speculative execution is on (spark.speculation=true).",
            why="Two attempts of one task would change the same state at a time.",
            do="Set spark.speculation=false for this application.",
        )


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is a client of Spark Connect, and has no JVM of its own."""
    return not hasattr(spark, "_jsparkSession")


def add_to_session(spark: SparkSession) -> None:
    """Give a running session the jar, and transformWithState leave to run on the store."""
    session: Any = spark
    if is_remote(spark):
        return  # its server was started with them
    call_static(spark, EXTENSIONS, "install", session._jsparkSession)


def run_is_durable(run: str) -> bool:
    """Whether a run of a query is over, and nothing of its state is in memory only.

    A client of Spark Connect does not learn it: False.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - whoever has a query has PySpark

    spark = SparkSession.getActiveSession()
    if spark is None or is_remote(spark):
        return False
    return bool(call_static(spark, RUN_ENDS, "isDurable", run))


def call_static(spark: SparkSession, class_name: str, method_name: str, argument: Any) -> Any:
    """Call a method of ours with one argument, for Python's own calls do not see the jar's classes."""
    context: Any = spark.sparkContext
    methods = load_class(spark, class_name).getMethods()
    arguments = context._gateway.new_array(context._jvm.java.lang.Object, 1)
    arguments[0] = argument
    return next(m for m in methods if m.getName() == method_name).invoke(None, arguments)


def load_class(spark: SparkSession, name: str) -> Any:
    """A class of our jar, which is given to the session first, and to the calling thread."""
    session: Any = spark
    loaders = session.sparkContext._jvm.java.lang.Thread
    try:
        return loaders.currentThread().getContextClassLoader().loadClass(name)
    except Exception as absent:
        if "ClassNotFoundException" not in str(absent):
            raise
        spark.sql(f"ADD JAR '{without_spaces(jar_path())}'")
        return loaders.currentThread().getContextClassLoader().loadClass(name)
