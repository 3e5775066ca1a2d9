"""``tether replica``: one of several drivers of the same query."""

from __future__ import annotations

import inspect
import json
from typing import Annotated, Any

import typer

from tether.core.errors import BadValueError


def replica(
    program: Annotated[
        str,
        typer.Argument(
            help="File or module with stream(spark, replica) and tolerance, a tether.Available."
        ),
    ],
    name: Annotated[str, typer.Option("--name", help="Name of this replica; its own.")],
    folder: Annotated[str, typer.Option("--folder", help="Directory or URL that all share.")],
    time: Annotated[str, typer.Option("--time", help="Column of the results: their tuple time.")],
    disorder: Annotated[
        float, typer.Option("--disorder", help="How much older than their rows results may be.")
    ] = 0.0,
    master: Annotated[str, typer.Option("--master", help="Spark's master URL.")] = "local[2,4]",
    lease_seconds: Annotated[
        float,
        typer.Option("--lease", help="Seconds until others no longer wait for one that has died."),
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """Run one replica of a query until it is stopped: it writes FOLDER/NAME/exchange."""
    from tether.cli.query_module import load_module  # noqa: PLC0415 - needs PySpark
    from tether.cli.session import open_session  # noqa: PLC0415
    from tether.policies.available import Available  # noqa: PLC0415
    from tether.sources.replica import Replica  # noqa: PLC0415

    module = load_module(program)
    make, tolerance = getattr(module, "stream", None), getattr(module, "tolerance", None)
    if not inspect.isfunction(make) or len(inspect.signature(make).parameters) != 2:
        raise BadValueError(
            f"{program} defines no stream(spark, replica).",
            why="Each replica reads the inputs under a name of its own.",
            do="Define it: it returns tether.stream(tether.subscribe(..., replica=replica)).apply(…).",
        )
    if not isinstance(tolerance, Available):
        raise BadValueError(
            f"{program} defines no tolerance that is a tether.Available.",
            do="Define it, and give it to tether.subscribe too.",
        )
    this = Replica(name=name, folder=folder, lease_seconds=lease_seconds)
    stream = make(open_session(master, app=f"tether replica {name}"), this)
    query = this.start(stream, tolerance=tolerance, time=time, disorder=disorder)
    _tell({"replica": name, "exchange": this.exchange, "query": query.id}, as_json=as_json)
    known: Any = None
    while not query.awaitTermination(1.0):
        healing = query.healing()
        now = None if healing is None else healing["phase"]
        if now != known:
            known = now
            _tell({"replica": name, "phase": now or "stable"}, as_json=as_json)


def _tell(facts: dict[str, Any], *, as_json: bool) -> None:
    line = json.dumps(facts) if as_json else "  ".join(f"{k}: {v}" for k, v in facts.items())
    print(line, flush=True)
