"""``tether run``: a ready operator over files, from the command line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tether.cli.answers import LatestPerKey
from tether.cli.run_options import RunOptions, with_options
from tether.cli.session import open_session
from tether.core.errors import BadValueError
from tether.observe.short_story import short_story

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tether.chaos.faults import Fault
    from tether.operator import Operator
    from tether.policies.policy import Policy
    from tether.spark.query import Query

run = typer.Typer(help="Run a ready operator over a directory of files.", no_args_is_help=True)

Input = Annotated[Path, typer.Option("--input", help="Directory of files to stream.")]


@run.command()
@with_options
def counts(
    options: RunOptions,
    *,
    input_: Input,
    key: Annotated[list[str], typer.Option("--key", help="Key column; may be repeated.")],
    sums: Annotated[
        list[str] | None, typer.Option("--sum", help="Column to sum; may be repeated.")
    ] = None,
    divergence: Annotated[str, typer.Option("--divergence", help="l1, l2 or max.")] = "l1",
) -> None:
    """Counts and sums per key, over Parquet, JSON or CSV files."""
    chosen = options.choose()  # a slip is cheaper before Spark starts
    from tether.algorithms.aggregate import KeyedAggregate  # noqa: PLC0415 - needs PySpark

    operator = KeyedAggregate(sums or (), divergence=chosen.divergence or divergence)
    if options.explain:
        options.show(chosen, operator, key)
        return
    session = open_session(options.master)
    _stream(_read(session, input_, options.files_per_epoch), operator, key, chosen.policy, options)


@run.command()
@with_options
def wordcount(options: RunOptions, *, input_: Input) -> None:
    """How often each word comes in a directory of text files."""
    chosen = options.choose(only="max")
    from tether.algorithms.word_count import WordCount, words  # noqa: PLC0415 - needs PySpark

    if options.explain:
        options.show(chosen, WordCount(), ["word"])
        return
    session = open_session(options.master)
    _check_directory(input_)
    reader = session.readStream.option("maxFilesPerTrigger", options.files_per_epoch)
    _stream(words(reader.text(str(input_))), WordCount(), ["word"], chosen.policy, options)


def _check_directory(path: Path) -> None:
    if not path.is_dir():
        raise BadValueError(
            f"{path} is not a directory.",
            why="A stream of files is read from a directory.",
            do="Give the directory that holds the files.",
        )


def _read(session: SparkSession, path: Path, files_per_epoch: int) -> DataFrame:
    """A stream of the files in a directory; format and schema are those of what is there now."""
    _check_directory(path)
    endings = sorted({file.suffix for file in path.iterdir() if file.suffix})
    formats = {".parquet": "parquet", ".json": "json", ".csv": "csv"}
    known = [formats[ending] for ending in endings if ending in formats]
    if len(known) != 1:
        raise BadValueError(
            f"The format of the files in {path} is not clear.",
            why=f"The file names end with {endings or 'nothing'}.",
            do="Give a directory of .parquet, .json or .csv files of one kind.",
        )
    static = session.read.format(known[0]).option("header", "true").option("inferSchema", "true")
    schema = static.load(str(path)).schema
    reader = session.readStream.schema(schema).format(known[0]).option("header", "true")
    return reader.option("maxFilesPerTrigger", files_per_epoch).load(str(path))


def _stream(
    rows: DataFrame, operator: Operator, key: list[str], policy: Policy, options: RunOptions
) -> None:
    import tether  # noqa: PLC0415 - the public door, which needs PySpark

    latest = LatestPerKey(key)
    began = time.monotonic()
    query = (
        tether.stream(rows)
        .apply(operator, key=key, parallelism=options.slots)
        .start(
            latest,
            tolerance=policy,
            backup=options.backup,
            checkpoint=options.checkpoint,
            trigger={"availableNow": True},
            arena_scope=options.arena_scope,  # type: ignore[arg-type]
            accept_damage=options.accept_damage,
            faults=_faults(),
        )
    )
    query.awaitTermination()
    answer = latest.table()
    if options.answer is not None:
        import pyarrow.parquet as pq  # noqa: PLC0415 - only for this

        pq.write_table(answer, options.answer)
    seconds = time.monotonic() - began
    summary = _summary(query, operator.name, answer.num_rows, seconds, whole=options.story)
    if options.as_json:
        print(json.dumps(summary))
    else:
        _show(summary)


def _faults() -> list[Fault]:
    """Faults on purpose, from the environment: how tests strike a whole command."""
    from tether.chaos.faults import Fault  # noqa: PLC0415 - needs nothing before a query starts

    try:
        return msgspec.json.decode(os.environ.get("TETHER_FAULTS", "[]"), type=list[Fault])
    except msgspec.MsgspecError as error:
        raise BadValueError(
            "TETHER_FAULTS holds no list of faults.",
            why=str(error),
            do="Unset it, or take it from tether.testing.injector.Injector.environment().",
        ) from error


def _summary(
    query: Query, operator: str, keys: int, seconds: float, *, whole: bool
) -> dict[str, Any]:
    progress = query.recentProgress
    bound = msgspec.to_builtins(query.bound())
    return {
        "operator": operator,
        "epochs": len([p for p in progress if p["numInputRows"]]),
        "rows": sum(p["numInputRows"] for p in progress),
        "keys": keys,
        "seconds": round(seconds, 3),
        "bound": {name: _finite(value) for name, value in bound.items() if name != "slots"},
        "totals": query.totals(),
        "story": [msgspec.to_builtins(event) for event in query.story()]
        if whole
        else short_story(query.story()),
    }


def _finite(value: object) -> object:
    """JSON has no infinity."""
    return "inf" if value == float("inf") else value


def _show(summary: dict[str, Any]) -> None:
    totals, bound = summary["totals"], summary["bound"]
    print(
        f"{summary['operator']}: {summary['rows']:,} rows, {summary['keys']:,} keys, "
        f"{summary['epochs']} epochs, {summary['seconds']:.1f} s"
    )
    print(
        f"backups: {totals['backups']} ({totals['backup_bytes']:,} bytes), losses: {totals['losses']}"
    )
    print(
        f"bound: the answer is wrong by at most {bound['spent']} now; "
        f"promised: never more than {bound['promised']}"
    )
