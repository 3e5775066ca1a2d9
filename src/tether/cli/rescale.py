"""``tether rescale``: another number of slots for a query that is stopped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tether.backup.opening import open_store
from tether.cli.inspect import storage_options_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.spark.running.offline import SparkHomes


def rescale(
    backup: Annotated[str, typer.Argument(help="Backup directory of the query; path or URL.")],
    operator: Annotated[str, typer.Option("--operator", help="Name of the operator.")],
    slots: Annotated[int, typer.Option("--slots", help="The new number of slots.")],
    options: Annotated[
        str, typer.Option("--options", help="Options of the file system, as JSON.")
    ] = "{}",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Divide the state of a stopped query by key, for another number of slots."""
    from tether.spark.running.offline import rescale_store  # noqa: PLC0415 - needs PySpark

    store = open_store(backup, storage_options=storage_options_of(options))
    moved = rescale_store(store, operator, slots, _homes)
    if as_json:
        print(json.dumps(moved._asdict()))
    elif moved.before == moved.after:
        print(f"{operator} has {slots} slots already.")
    else:
        print(
            f"{operator}: {moved.before} slots before, {moved.after} now. Start the query as before: it "
            f"goes on with epoch {moved.next_epoch}."
        )


def _homes(types: Mapping[str, Mapping[str, str]]) -> SparkHomes:
    from tether.cli.session import open_session  # noqa: PLC0415 - needs PySpark
    from tether.spark.running.offline import SparkHomes  # noqa: PLC0415

    return SparkHomes(types, lambda: open_session("local[2,4]"))
