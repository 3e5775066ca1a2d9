"""``tether simulate``: thousands of slots and failures on virtual time, and what they cost."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads it from the signature
from typing import TYPE_CHECKING, Annotated

import typer

from tether.core.errors import BadValueError, TetherError
from tether.policies.approximate import Approximate
from tether.policies.parse import parse_policy

if TYPE_CHECKING:
    from tether.simulate.epoch_query import EpochScenario
    from tether.simulate.report import Report

# Budgets by default, a slot: θ, l and γ then start at half of them.
STATE_ERROR_PER_SLOT, ITEMS_PER_SLOT = 600.0, 128.0


def simulate(
    slots: Annotated[int, typer.Option("--slots", help="Slots of all operators.")] = 1000,
    failures: Annotated[int, typer.Option("--failures", help="Faults to draw.")] = 100,
    operators: Annotated[int, typer.Option("--operators", help="Length of the pipeline.")] = 2,
    fan_out: Annotated[int, typer.Option("--fan-out", help="Outputs for an item.")] = 1,
    rounds: Annotated[int, typer.Option("--rounds", help="Messages of each source.")] = 6,
    max_state_error: Annotated[
        float | None, typer.Option("--max-state-error", help="Θ; by default 600 a slot.")
    ] = None,
    max_lost_items: Annotated[
        float | None, typer.Option("--max-lost-items", help="L; by default 128 a slot.")
    ] = None,
    max_unacked_items: Annotated[
        float | None, typer.Option("--max-unacked-items", help="Γ; by default 128 a slot.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            help="Run epochs of the engine under this policy: approximate, mini-batch, "
            "upstream-backup, barrier or partially-active, with settings as for tether run. "
            "Without it: items in channels, approximate, with L and Γ.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", help="Nodes that slots are on, which fail one by one, by racks, or all."
        ),
    ] = None,
    racks: Annotated[int, typer.Option("--racks", help="Racks that they are in.")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Seed of stream and faults.")] = 1,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw error, bound and recovery into this SVG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run the real policies and states through seeded failures; exit 0 when it simulated."""
    from tether.simulate.report import simulate as run  # noqa: PLC0415 - loads numpy and Arrow
    from tether.simulate.scenario import Scenario  # noqa: PLC0415

    if operators < 1 or slots < 1 or slots % operators:
        raise BadValueError(
            f"{slots} slots cannot be shared by {operators} operators.",
            why="Every operator has the same number of copies, at least one.",
            do="Give a number of slots that is a multiple of the number of operators.",
        )
    if policy is not None:
        epochs = _epochs_of(policy, slots, operators, rounds, nodes, racks, seed)
        _simulate_epochs(epochs, failures, as_json=as_json)
        return
    if nodes is not None:
        raise BadValueError(
            "Nodes are simulated in epochs.",
            why="Without --policy, items travel in channels between slots, wherever these are.",
            do="Give a policy, for example --policy partially-active.",
        )
    approximate = Approximate(
        STATE_ERROR_PER_SLOT * slots if max_state_error is None else max_state_error,
        ITEMS_PER_SLOT * slots if max_lost_items is None else max_lost_items,
        ITEMS_PER_SLOT * slots if max_unacked_items is None else max_unacked_items,
    )
    scenario = Scenario(
        copies=slots // operators,
        operators=operators,
        fan_out=fan_out,
        rounds=rounds,
        batch=64,
        policy=approximate,
        seed=seed,
    )
    report = run(scenario, failures=failures)
    if plot is not None:
        _draw(report, plot)
    if as_json:
        print(json.dumps(report.plain()))
    else:
        _show(report)


def _epochs_of(
    text: str,
    slots: int,
    operators: int,
    epochs: int,
    nodes: int | None,
    racks: int,
    seed: int,
) -> EpochScenario:
    """The scenario, with settings that a policy was given without."""
    from tether.simulate.epoch_query import EpochScenario  # noqa: PLC0415

    if text == "approximate":
        text = f"approximate:max_state_error={STATE_ERROR_PER_SLOT * slots:g}"
    elif text == "barrier" or (text.startswith("barrier:") and "interval" not in text):
        text = f"barrier:interval=2epochs,{text.partition(':')[2]}"
    elif text.startswith("partially-active"):
        given = text.partition(":")[2]
        more = [] if "share" in given or "copies" in given else ["share=0.5"]
        more += [] if "interval" in given else ["interval=4epochs"]
        text = f"partially-active:{','.join([*more, given])}"
        nodes = nodes or 10
    return EpochScenario(
        copies=slots // operators,
        operators=operators,
        epochs=epochs,
        policy=parse_policy(text),
        nodes=nodes,
        racks=racks,
        seed=seed,
    )


def _simulate_epochs(scenario: EpochScenario, failures: int, *, as_json: bool) -> None:
    from tether.simulate.epochs import simulate_epochs  # noqa: PLC0415

    report = simulate_epochs(scenario, failures=failures)
    if as_json:
        print(json.dumps(report.plain()))
        return
    from rich.console import Console  # noqa: PLC0415 - only for people

    console = Console()
    console.print(
        f"{scenario.slots:,} slots, {scenario.epochs} epochs, {sum(report.faults.values()):,} faults, "
        f"{report.recoveries:,} recoveries, {report.rewinds} rewinds, seed {scenario.seed}"
    )
    if scenario.nodes is not None:
        tentative = [one for one in report.fidelity if one < 1.0]
        console.print(
            f"{scenario.nodes:,} nodes in {scenario.racks} racks: copies spoke for "
            f"{report.promotions:,} slots, {report.take_overs} take-overs; rows of "
            f"{len(tentative)} epochs were tentative, with fidelity {min(report.fidelity):.3f} at worst"
        )
    for name, error, told in zip(scenario.names, report.state_error, report.told, strict=True):
        console.print(f"operator {name}: wrong by {error:,.6g}, told {told:,.6g} at most")
    console.print(f"promised {report.promised:,.6g}; {len(report.violations)} violations")
    console.print(f"{report.frames:,} frames, {report.frame_bytes:,} bytes")
    console.print(f"simulated in {report.wall_seconds:.1f} s")
    for violation in report.violations[:20]:
        console.print(f"[red]violation[/red] {violation}", highlight=False)


def _draw(report: Report, path: Path) -> None:
    from tether.simulate.plot import draw  # noqa: PLC0415

    try:
        path.write_text(draw(report), encoding="utf-8")
    except OSError as error:
        raise TetherError(
            f"The picture cannot be written to {path}.",
            why=str(error),
            do="Give a file name in a folder that exists and can be written to.",
        ) from error


def _show(report: Report) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for people
    from rich.table import Table  # noqa: PLC0415

    state, items, unacked = report.lost
    promised = report.promised
    table = Table("what", "measured", "at most")
    table.add_row("state lost, all losses", f"{state:,.6g}", f"{promised[0]:,.6g}")
    table.add_row("items lost unprocessed", f"{items:,}", f"{promised[1]:,.6g}")
    table.add_row("items lost unacknowledged", f"{unacked:,}", f"{promised[2]:,.6g}")
    for number, error in enumerate(report.state_error, 1):
        name = f"state error of operator {number}"
        table.add_row(name, f"{error:,.6g}", f"{report.most_state_error:,.6g}")
    lost, most = report.lost_outputs, report.most_lost_outputs
    table.add_row("outputs lost", f"{lost:,}", f"{most:,.6g}")
    table.add_row("bound violations", str(len(report.violations)), "0")
    console = Console()
    console.print(
        f"{report.scenario.slots:,} slots, {sum(report.faults.values()):,} faults, "
        f"{report.losses:,} losses, {report.items:,} items, seed {report.scenario.seed}"
    )
    console.print(table)
    written = ", ".join(
        f"{what} {size:,} bytes in {report.writes[what]:,} writes"
        for what, size in report.bytes_written.items()
    )
    console.print(f"backed up: {written}")
    console.print(
        f"recovery: median {report.recovery(0.5) * 1000:.1f} ms, "
        f"worst {report.recovery(1.0) * 1000:.1f} ms (virtual)"
    )
    console.print(
        f"throughput lost: {report.backup_loss:.1%} to backups while up, "
        f"{report.throughput_loss:.1%} with downtime and waiting for receivers"
    )
    console.print(f"simulated {report.virtual_seconds:.2f} s in {report.wall_seconds:.1f} s")
    for violation in report.violations[:20]:
        console.print(f"[red]violation[/red] {violation}", highlight=False)
