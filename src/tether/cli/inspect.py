"""``tether inspect``: what is in a backup directory, also a damaged one."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
import typer

from tether.backup.inspect import as_plain, describe_store
from tether.backup.opening import open_store
from tether.core.errors import BadValueError
from tether.observe.digest import digest_of
from tether.observe.reading import FeedReader
from tether.sql.checkpoint import describe_checkpoint, is_checkpoint


def inspect(
    backup: Annotated[
        str,
        typer.Argument(help="Backup directory, or checkpoint of a bounded SQL query; path or URL."),
    ],
    verify: Annotated[bool, typer.Option("--verify", help="Read and check every frame.")] = False,
    frames: Annotated[bool, typer.Option("--frames", help="List every frame.")] = False,
    options: Annotated[
        str, typer.Option("--options", help="Options of the file system, as JSON.")
    ] = "{}",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a backup directory holds: frames, age, bytes, divergence, causes, damage."""
    storage_options = storage_options_of(options)
    if is_checkpoint(backup, **storage_options):
        _inspect_checkpoint(backup, storage_options, verify=verify, as_json=as_json)
        return
    report = as_plain(
        describe_store(open_store(backup, storage_options=storage_options), verify=verify)
    )
    reader = FeedReader(backup, storage_options or None)
    reader.look()
    report["feed"] = digest_of(reader.feed)
    if as_json:
        print(_json(report))
        return
    _show(report, list_frames=frames)
    if report["feed"]:
        _show_feed(report["feed"])


def storage_options_of(told: str) -> dict[str, Any]:
    """Options of a file system, as ``--options`` has them.

    Raises:
        BadValueError: It is not a JSON object.
    """
    try:
        return msgspec.json.decode(told, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadValueError(
            "--options is not a JSON object.", why=str(error), do="For example: '{\"anon\": true}'."
        ) from error


def _json(report: dict[str, Any]) -> str:
    """JSON that every reader takes: it knows no infinity, which becomes null."""
    return msgspec.json.encode(report).decode()


def _inspect_checkpoint(path: str, options: dict[str, Any], *, verify: bool, as_json: bool) -> None:
    report = describe_checkpoint(path, verify=verify, **options)
    if as_json:
        print(_json(msgspec.to_builtins(report) | {"spent": report.spent}))
        return
    from rich.console import Console  # noqa: PLC0415 - only for people
    from rich.table import Table  # noqa: PLC0415

    console = Console()
    console.print(f"newest committed batch: {report.last_batch}; lost so far: {report.spent:g}")
    table = Table("operator", "partition", "store", "k", "θ", "lost", "backups", "bytes", "newest")
    for store in report.stores:
        table.add_row(
            str(store.operator),
            str(store.partition),
            store.name,
            str(store.failures),
            f"{store.theta:g} {store.divergence}",
            f"{store.spent:g}",
            f"{store.backups} ({store.snapshots} snapshots)",
            f"{store.bytes:,}",
            f"version {store.newest_version}",
        )
    console.print(table)
    for store in report.stores:
        for line in store.damage:
            where = f"{store.operator}/{store.partition}/{store.name}"
            console.print(f"[red]damage[/red] {where}: {line}", highlight=False)


def _show(report: dict[str, Any], *, list_frames: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for people
    from rich.table import Table  # noqa: PLC0415

    console = Console()
    manifest = report["manifest"]
    if manifest is None:
        console.print("No manifest: no query has begun here.")
    else:
        policy = manifest["fingerprint"].get("policy", {})
        console.print(
            f"query {manifest['query_id']}, written by Tether {manifest['tether_version']}"
        )
        console.print("policy: " + ", ".join(f"{name}={value}" for name, value in policy.items()))
    console.print(
        f"newest commit record: epoch {report['last_epoch']}; {report['bytes_used']:,} bytes"
    )
    for cause, number in sorted(report["frames_by_cause"].items()):
        console.print(f"  {cause}: {number} frames, {report['bytes_by_cause'][cause]:,} bytes")
    table = Table(
        "operator",
        "slot",
        "k",
        "θ",
        "lost",
        "frames",
        "chain",
        "bytes",
        "newest",
        "age",
        "divergence",
    )
    for slot in report["slots"]:
        newest = slot["frames"][-1] if slot["frames"] else None
        table.add_row(
            slot["operator"],
            str(slot["slot"]),
            str(slot["failures"]),
            _shown(slot["theta"]),
            _shown(slot["spent"]) + _items(slot["losses"]),
            str(len(slot["frames"])),
            str(slot["chain_length"]),
            f"{slot['bytes']:,}",
            f"epoch {newest['epoch']}" if newest else "-",
            f"{newest['age_seconds']:.0f} s" if newest else "-",
            f"{newest['divergence_before']:g} → {newest['divergence_after']:g}" if newest else "-",
        )
    console.print(table)
    if list_frames:
        _show_frames(console, Table, report)
    for line in report["damage"]:
        console.print(f"[red]damage[/red] {line}", highlight=False)


def _show_feed(feed: dict[str, Any]) -> None:
    last = feed["last_epoch"]
    print(f"last heard of: epoch {last}, {feed['state']}; {feed['epochs']:,} epochs in the feed")
    print(f"bound then: at most {feed['spent']} of {feed['promised']}, at worst {feed['worst']}")
    if feed["healing"]:
        _show_healing(feed["healing"])
    for failure in feed["failures"]:
        print(
            f"  failure {failure['number']}, epoch {failure['epoch']}: {failure['slots']} slots, "
            f"lost at most {failure['lost']} of {failure['allowed']}"
        )
    print("the whole of it as a page: tether ui <this directory>")


def _show_healing(healing: dict[str, Any]) -> None:
    """What was missing when the query was last heard of."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(healing["since"] or 0.0))
    left = healing["seconds_left"]
    print(
        f"{healing['state']} since epoch {healing['since_epoch']} ({since}), "
        f"fidelity {healing['fidelity']:.2f}; twin {healing['epochs_behind']} epochs behind"
        + ("" if left is None else f", about {left:.0f} s left")
    )
    if healing["tentative_rows"]:
        print(
            f"  {healing['tentative_rows']:,} tentative rows are not corrected yet, the oldest given "
            f"{healing['oldest_tentative_seconds']:.0f} s ago"
        )


def _shown(number: float | str) -> str:
    return number if isinstance(number, str) else f"{number:g}"


def _items(losses: list[dict[str, Any]]) -> str:
    """How many items were lost besides, where any were."""
    counts = [loss["items"] for loss in losses]
    lost = "inf" if "inf" in counts else sum(counts)
    return f" and {_shown(lost)} items" if lost else ""


def _show_frames(console: Any, table_class: Any, report: dict[str, Any]) -> None:
    table = table_class(
        "slot", "epoch", "seq", "kind", "cause", "standing", "entries", "bytes", "divergence"
    )
    for slot in report["slots"]:
        for frame in slot["frames"]:
            table.add_row(
                f"{slot['operator']}/{slot['slot']}",
                str(frame["epoch"]),
                str(frame["sequence"]),
                frame["kind"],
                frame["cause"],
                frame["standing"],
                str(frame["entries"]),
                f"{frame['bytes']:,}",
                f"{frame['divergence_before']:g} → {frame['divergence_after']:g}",
            )
    console.print(table)
