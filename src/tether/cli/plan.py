"""``tether plan``: which slots are worth a copy, and what any number of copies would keep."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads it from the signature
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from tether.cli.query_module import load_stream, measured_topology
from tether.core.errors import BadValueError, TetherError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tether.planning import Plan, Point, Topology
    from tether.planning.planners import PlannerName
    from tether.planning.topology import Partitioning

FILES = (".toml", ".json")
FEW_TREES = 14
"""Largest number of complete trees of which all unions are tried for the curve."""
LARGE, MOST_POINTS = 100, 11
"""On more slots than the first, a curve has no more points than the second by default."""


def plan(
    what: Annotated[
        str,
        typer.Argument(
            help="A topology (.toml, .json), or a query: query.py, or package.query:name."
        ),
    ],
    copies: Annotated[int | None, typer.Option("--copies", help="R: how many copies.")] = None,
    share: Annotated[
        float | None,
        typer.Option("--share", help="The same as a part of all slots; 0.5 by default."),
    ] = None,
    planner: Annotated[
        str, typer.Option("--planner", help="structure-aware, optimal, greedy, …")
    ] = "structure-aware",
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", help="Of a query: parse=400,300 or parse=350; may be repeated."),
    ] = None,
    measure: Annotated[
        int | None,
        typer.Option("--measure", help="Of a query: run so many epochs and take its own rates."),
    ] = None,
    partitioning: Annotated[
        list[str] | None,
        typer.Option("--partitioning", help="Of a query: parse:count=merge; may be repeated."),
    ] = None,
    joins: Annotated[
        list[str] | None, typer.Option("--joins", help="Of a query: an operator that joins.")
    ] = None,
    folds: Annotated[
        list[str] | None,
        typer.Option(
            "--folds", help="With --measure: an operator that sends sums; counts by rows in."
        ),
    ] = None,
    points: Annotated[
        int | None, typer.Option("--points", help="Points of each curve; 0: no curves.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Draw the graph and the curves into this file.")
    ] = None,
    master: Annotated[str, typer.Option("--master", help="Spark's master URL.")] = "local[2,4]",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Choose the slots that get a copy, so that most of the output goes on when all others are lost."""
    from tether.planning import plan as make_plan  # noqa: PLC0415 - loads numpy
    from tether.planning import smallest_tree  # noqa: PLC0415

    if copies is None and share is None:
        share = 0.5
    given = _Given(rate, measure, partitioning, joins, folds)
    topology = given.topology(what, master)
    chosen = make_plan(topology, copies, share=share, planner=planner)  # type: ignore[arg-type]
    curves, left_out = _curves(topology, points)
    if svg is not None:
        _draw(topology, chosen, curves, svg)
    if as_json:
        print(json.dumps(_plain(topology, chosen, curves, left_out, smallest_tree(topology))))
    else:
        _show(topology, chosen, curves, left_out)


class _Given:
    """What the command line says of a query, which a topology file would say itself."""

    def __init__(
        self,
        rate: Sequence[str] | None,
        measure: int | None,
        partitioning: Sequence[str] | None,
        joins: Sequence[str] | None,
        folds: Sequence[str] | None,
    ) -> None:
        self._of_a_query = bool(rate or measure or partitioning or joins or folds)
        self._rates = dict(_rates(text) for text in rate or ())
        self._partitionings = dict(_edge(text) for text in partitioning or ())
        self._measure, self._joins, self._folds = measure, list(joins or ()), list(folds or ())

    def topology(self, what: str, master: str) -> Topology:
        from tether.planning import read_topology  # noqa: PLC0415

        if what.endswith(FILES):
            if self._of_a_query:
                raise BadValueError(
                    "--rate, --measure, --partitioning, --joins and --folds are for queries.",
                    why=f"{what} is a topology, which says all of that itself.",
                    do="Write it into the file, or name a query.",
                )
            return read_topology(what)
        if (self._measure is None) == (not self._rates):
            raise BadValueError(
                "The rates of the query are not known."
                if not self._rates
                else "Two kinds of rates.",
                why="How much each slot sends decides what its copy is worth.",
                do="Give --rate for every operator that reads the source, or --measure N to run N "
                "epochs and take what flows.",
            )
        if self._measure is not None and self._measure < 1:
            raise BadValueError(f"--measure {self._measure} is no number of epochs.")
        stream = load_stream(what, master=master)
        if self._measure is None:
            return stream.topology(
                self._rates, correlated=self._joins, partitionings=self._partitionings
            )
        return measured_topology(
            stream,
            self._measure,
            correlated=self._joins,
            partitionings=self._partitionings,
            folding=self._folds,
        )


def _rates(text: str) -> tuple[str, float | list[float]]:
    name, sign, numbers = text.partition("=")
    try:
        each = [float(number) for number in numbers.split(",")]
    except ValueError:
        each = []
    if not sign or not each:
        raise BadValueError(f"--rate {text!r} is not understood.", do="Write --rate parse=400,300.")
    return name, each if len(each) > 1 else each[0]


def _edge(text: str) -> tuple[tuple[str, str], Partitioning]:
    from tether.planning.topology import Partitioning  # noqa: PLC0415

    ends, _, kind = text.partition("=")
    source, colon, target = ends.partition(":")
    if not colon or kind not in get_args(Partitioning):
        raise BadValueError(
            f"--partitioning {text!r} is not understood.",
            do=f"Write --partitioning parse:count=merge; known are {list(get_args(Partitioning))}.",
        )
    return (source, target), kind  # type: ignore[return-value]


def _curves(
    topology: Topology, points: int | None
) -> tuple[dict[str, tuple[Point, ...]], dict[str, str]]:
    """Fidelity against copies for each planner, and why others are left out."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415 - only for people

    from tether.planning import bound_curve, count_trees, curve  # noqa: PLC0415

    slots = len(topology.slots)
    if points is None:
        points = slots + 1 if slots <= LARGE else MOST_POINTS
    if points == 0:
        return {}, {}
    if points < 2:
        raise BadValueError(f"--points {points} is no curve.", do="Give 0, or 2 and more.")
    copies = sorted({round(slots * at / (points - 1)) for at in range(points)})
    found: dict[str, tuple[Point, ...]] = {}
    left_out: dict[str, str] = {}
    names: list[PlannerName] = ["structure-aware", "greedy", "optimal", "dynamic-programming"]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for name in names:
            if name == "dynamic-programming" and (trees := count_trees(topology)) > FEW_TREES:
                left_out[name] = f"{trees:,} complete trees; it tries all unions of them"
                continue
            try:
                each = progress.track(copies, description=name)
                found[name] = curve(topology, name, copies=each)
            except TetherError as error:
                left_out[name] = f"{error.what} {error.why or ''}".strip()
        try:
            found["bound"] = bound_curve(
                topology, copies=progress.track(copies, description="bound")
            )
        except TetherError as error:
            left_out["bound"] = f"{error.what} {error.why or ''}".strip()
    return found, left_out


def _draw(
    topology: Topology, chosen: Plan, curves: dict[str, tuple[Point, ...]], path: Path
) -> None:
    from tether.planning import draw  # noqa: PLC0415

    try:
        path.write_text(draw(topology, chosen, curves), encoding="utf-8")
    except OSError as error:
        raise TetherError(
            f"The picture cannot be written to {path}.",
            why=str(error),
            do="Give a file name in a folder that exists and can be written to.",
        ) from error


def _plain(
    topology: Topology,
    chosen: Plan,
    curves: dict[str, tuple[Point, ...]],
    left_out: dict[str, str],
    smallest: int,
) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    return {
        "topology": msgspec.to_builtins(topology),
        "slots": len(topology.slots),
        "smallest_tree": smallest,
        "plan": {
            "planner": chosen.planner,
            "allowed": chosen.allowed,
            "copied": {node.name: list(chosen.numbers(node.name)) for node in topology.nodes},
            "fidelity": chosen.fidelity,
            "bound": chosen.bound,
            "most_below_best": chosen.most_below_best,
        },
        "curves": {
            name: [[point.copies, point.fidelity] for point in points]
            for name, points in curves.items()
        },
        "left_out": left_out,
    }


def _show(
    topology: Topology,
    chosen: Plan,
    curves: dict[str, tuple[Point, ...]],
    left_out: dict[str, str],
) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for people
    from rich.table import Table  # noqa: PLC0415

    console = Console()
    console.print(
        f"{chosen.planner}: {len(chosen.copied)} copies for {len(topology.slots)} slots; with all "
        f"other slots lost, output fidelity {chosen.fidelity:.3f}"
    )
    if chosen.bound is not None:
        console.print(
            f"no plan of {chosen.allowed} copies has more than {chosen.bound:.3f}: this one lacks at "
            f"most {chosen.most_below_best:.1%} of the best"
        )
    table = Table("operator", "slots", "copies of slots")
    for node in topology.nodes:
        numbers = chosen.numbers(node.name)
        table.add_row(node.name, str(node.slots), ", ".join(map(str, numbers)) or "none")
    console.print(table)
    if curves:
        lines = Table("copies", *curves)
        for row in zip(*curves.values(), strict=True):
            lines.add_row(str(row[0].copies), *(f"{point.fidelity:.3f}" for point in row))
        console.print(lines)
    for name, why in left_out.items():
        console.print(f"left out: {name}: {why}", highlight=False)
