"""The door: ``tether.subscribe(spark, [inputs], reader=…, bucket=…)``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tether.core.checks import amount, count
from tether.core.errors import BadValueError
from tether.protocols.consistency import Handling
from tether.sources.exchange.gateway_input import GatewayInput
from tether.sources.exchange.log import ExchangeAddress
from tether.sources.exchange.readers import check_reader
from tether.sources.sunion.looking import Spec
from tether.sources.sunion.source import FORMAT, SPEC, SUnionSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tether.policies.available import Available
    from tether.sources.exchange.lease import LeaseAddress
    from tether.sources.exchange.log import About
    from tether.sources.replica import Replica

NEVER = 2.0**60
"""Seconds; infinity cannot be written as JSON."""


def subscribe(
    spark: SparkSession,
    inputs: Sequence[str | GatewayInput | Sequence[str]],
    *,
    reader: str,
    bucket: float,
    delay: float | None = None,
    alpha: float = 0.9,
    failure: Literal["process", "delay"] = "process",
    stabilization: Literal["process", "delay", "suspend"] = "process",
    tolerance: Available | None = None,
    replica: Replica | None = None,
    places: bool = False,
    most_buckets: int | None = None,
    partitions: int | None = None,
    retain: int = 100,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Several exchanges as one streaming DataFrame, cut into epochs by tuple time.

    A bucket of tuple time is given when all inputs have said that nothing older will come: whole, once,
    ordered by (tuple time, input, sequence). With a ``delay`` X, one that has waited αX for an input is
    given without it, marked as tentative; and again, whole and stable, when the input has come back.

    Guarantee: a retry, a restart, and another query over the same inputs read the same stable rows in
    the same order. No stable row is lost, doubled or withdrawn, also where an input is followed from one
    replica to another.

    Args:
        spark: The session.
        inputs: Exchanges, each a directory or URL; or, for one that several replicas of a query write,
            the list of theirs; or ``tether.GatewayInput`` for what comes straight from a gateway.
            They have the same columns.
        reader: A name for this reader, its own in every exchange: what it has not read is kept.
        bucket: Size of a bucket: seconds where tuple times were made from timestamps, else in their
            own unit.
        delay: X, seconds: the longest that a row may wait for its answer. None: rows wait as long as an
            input is missing, and all are stable.
        alpha: The part of X that a row waits here; the rest is for processing it.
        failure: While an input is missing: ``"process"``: buckets are given, after the first wait, as
            soon as the inputs that are there have ended them; ``"delay"``: each waits αX.
        stabilization: While late buckets are corrected: the same for new ones; ``"suspend"``: they
            wait until all are corrected, which may take longer than X.
        tolerance: Instead of these four, the policy that the query which reads this is started with:
            its operators process tentative rows beside the stable ones. Rows then have no columns that
            tell their kind; the query's output tells it.
        replica: Which of several replicas of the query reads this: each has its own end of the
            inputs, and they agree who corrects its answers first. See ``tether.Replica``.
        places: Whether rows carry ``_tuple_time``, ``_input``, ``_entry`` and ``_row``: their place in
            the order. A shuffle loses the order, and these bring it back.
        most_buckets: Largest number of buckets in an epoch. By default 1,000; with ``tolerance`` 1, so
            that epochs of stable rows are cut alike whatever fails, and so is what operators make of
            each epoch.
        partitions: Number of tasks that read an epoch; by default Spark's default parallelism.
        retain: Epochs for which exchanges keep what was read: as far as a query may go back.
        options: For the file system of the URLs.

    Returns:
        The rows. With a ``delay`` also ``_stability`` (``"stable"`` or ``"tentative"``), ``_bucket``
        (tuple time at which the row's bucket begins) and ``_stable_before``: tentative rows of buckets
        below it have been replaced by stable ones, given at the same time or before.
    """
    most = most_buckets if most_buckets is not None else 1_000 if tolerance is None else 1
    handling = _handling(delay, alpha, failure, stabilization, most)
    spec = specify(
        inputs,
        reader=reader if replica is None else f"{reader}-{replica.name}",
        bucket=bucket,
        handling=handling if tolerance is None else _handling_of(tolerance, delay, handling.most),
        kinds=delay is not None,
        places=places,
        partitions=partitions or spark.sparkContext.defaultParallelism,
        retain=retain,
        options=options,
        operators=tolerance is not None,
        lease=None if replica is None else replica.lease,
    )
    spark.dataSource.register(SUnionSource)
    encoded = msgspec.json.encode(spec).decode()
    return spark.readStream.format(FORMAT).option(SPEC, encoded).load()


def specify(
    inputs: Sequence[str | GatewayInput | Sequence[str]],
    *,
    reader: str,
    bucket: float,
    handling: Handling,
    kinds: bool = False,
    places: bool = False,
    partitions: int = 1,
    retain: int = 100,
    options: Mapping[str, Any] | None = None,
    operators: bool = False,
    lease: LeaseAddress | None = None,
) -> Spec:
    """Check what was asked for against what is there; see :func:`subscribe`."""
    gateways = tuple(each if isinstance(each, GatewayInput) else None for each in inputs)
    replicas = [
        [each.index]
        if isinstance(each, GatewayInput)
        else [each]
        if isinstance(each, str)
        else list(each)
        for each in inputs
    ]
    if not replicas or not all(replicas):
        raise BadValueError(
            "subscribe() was given no inputs, or one without replicas.",
            do="Name at least one exchange.",
        )
    addresses = tuple(
        tuple(ExchangeAddress(url=_absolute(url), options=dict(options or {})) for url in of_one)
        for of_one in replicas
    )
    about = [
        [
            _about(address) if source is None else source.prepare(address.open())
            for address in of_one
        ]
        for of_one, source in zip(addresses, gateways, strict=True)
    ]
    first = about[0][0]
    for of_one, places_ in zip(about, addresses, strict=True):
        for each, address in zip(of_one, places_, strict=True):
            _check_alike(first, each, address.url)
            if len(of_one) > 1 and not each.replicated:
                raise BadValueError(
                    f"The exchange {address.url} cannot be one of several replicas.",
                    why="Its rows carry no hash, by which rows of one time have one order in all.",
                    do="Write all of them with to_exchange(..., replicated=True).",
                )
    return Spec(
        inputs=addresses,
        reader=check_reader(reader),
        bucket=_bucket(bucket, first, handling),
        handling=handling,
        kinds=kinds,
        places=places,
        partitions=count("partitions", partitions, unit="tasks"),
        retain=count("retain", retain, unit="epochs"),
        row_schema=first.row_schema,
        columns=tuple(field["name"] for field in msgspec.json.decode(first.row_schema)["fields"]),
        replicated=tuple(len(of_one) > 1 for of_one in about),
        unit=first.unit,
        operators=operators,
        lease=lease,
        gateways=gateways if any(gateways) else (),
    )


def _handling_of(tolerance: Available, delay: float | None, most: int) -> Handling:
    if delay is not None:
        raise BadValueError(
            "subscribe() was given both a delay and a tolerance.",
            why="The policy says how long rows wait.",
            do="Leave delay out, and alpha, failure and stabilization with it.",
        )
    return msgspec.structs.replace(tolerance.handling, most=most)


def _about(address: ExchangeAddress) -> About:
    found = address.open().about()
    if found is None:
        raise BadValueError(
            f"There is no exchange at {address.url}.",
            why="Nobody has written to it yet, so its columns are not known.",
            do="Start the query that writes it first, and check the path.",
        )
    return found


def _check_alike(one: About, other: About, url: str) -> None:
    if (one.row_schema, one.unit) != (other.row_schema, other.unit):
        raise BadValueError(
            f"The exchange {url} has other columns than the first one.",
            why=f"It has {other.row_schema} in {other.unit}; the first {one.row_schema} in {one.unit}.",
            do="Give all inputs the same columns, with the same types, before they are written.",
        )


def _bucket(bucket: float, about: About, handling: Handling) -> int:
    size = amount("bucket", bucket, unit="seconds", zero=None, infinite=None)
    if about.unit != "integer" and size >= handling.wait:
        raise BadValueError(
            f"bucket={bucket!r} is too long for rows that wait {handling.wait:g} s at most.",
            why="The first row of a bucket waits at least until the bucket is over. So buckets would be "
            "given before all their rows have come, though no input is missing.",
            do=f"Give a bucket well below {handling.wait:g} s, or a longer delay.",
        )
    units = size if about.unit == "integer" else size * 1_000_000
    if units != int(units):
        raise BadValueError(
            f"bucket={bucket!r} cannot be used.",
            why=f"Tuple times are whole numbers of {about.unit}, and so must buckets be.",
            do="Give a bucket that is a whole number of them.",
        )
    return int(units)


def _handling(
    delay: float | None, alpha: float, failure: str, stabilization: str, most: int
) -> Handling:
    if failure not in ("process", "delay"):
        raise BadValueError(f"failure={failure!r} is not known.", do='Use "process" or "delay".')
    if stabilization not in ("process", "delay", "suspend"):
        raise BadValueError(
            f"stabilization={stabilization!r} is not known.",
            do='Use "process", "delay" or "suspend".',
        )
    part = amount("alpha", alpha, unit="parts of X", zero=None, infinite=None)
    if part >= 1:
        raise BadValueError(
            f"alpha={part:g} leaves no time to process a row within X.", do="Give a number below 1."
        )
    wait, spare = NEVER, 0.0
    if delay is not None:
        longest = amount("delay", delay, unit="seconds", zero=None, infinite=None)
        wait, spare = part * longest, (1 - part) * longest
    return Handling(
        wait=wait,
        failure=failure,  # type: ignore[arg-type]
        stabilization=stabilization,  # type: ignore[arg-type]
        most=count("most_buckets", most, unit="buckets"),
        spare=spare,
    )


def _absolute(url: str) -> str:
    # Executors have working directories of their own.
    return url if ":" in url else str(Path(url).absolute())
