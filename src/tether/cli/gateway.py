"""``tether gateway``: the ingest server for producers that cannot replay."""

from __future__ import annotations

import math
import os
from pathlib import Path  # noqa: TC003 - typer reads it from the signature
from typing import Annotated

import typer

from tether.core.errors import BadValueError


def gateway(
    store: Annotated[Path, typer.Option("--store", help="Folder of its durable log.")],
    listen: Annotated[
        str, typer.Option("--listen", help="host:port of Arrow Flight; port 0: any free one.")
    ] = "127.0.0.1:7070",
    http: Annotated[
        str, typer.Option("--http", help="host:port of HTTP; empty: no HTTP.")
    ] = "127.0.0.1:7071",
    max_lost: Annotated[
        str,
        typer.Option(
            "--max-lost",
            help="L: most acknowledged items that all crashes together may lose, in each stream; "
            "half of it is at risk at a time. 0: durable before each acknowledgement.",
        ),
    ] = "10000",
    max_unacked: Annotated[
        str,
        typer.Option("--max-unacked", help="Γ: most items that all dying producers may lose."),
    ] = "inf",
    producers: Annotated[
        int, typer.Option("--producers", help="Producers at a time that Γ is shared among.")
    ] = 1,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="A stream: 'name=column type, …'. May be given often."),
    ] = None,
    only: Annotated[
        bool, typer.Option("--only", help="Only these streams: producers make no new ones.")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="File with the token that clients show.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="PEM, for TLS.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="PEM of the certificate's key.")] = None,
    memory_bytes: Annotated[
        int, typer.Option("--memory-bytes", help="Above this, items are left to the disk.")
    ] = 128 << 20,
    store_bytes: Annotated[
        int, typer.Option("--store-bytes", help="Above this, producers have to wait.")
    ] = 64 << 30,
    batch_bytes: Annotated[
        int, typer.Option("--batch-bytes", help="Largest batch or request.")
    ] = 64 << 20,
    connections: Annotated[
        int, typer.Option("--connections", help="Most connections at a time, of each kind.")
    ] = 2000,
    processes: Annotated[
        int, typer.Option("--processes", help="Processes behind the one address, a core for each.")
    ] = 1,
    idle_seconds: Annotated[
        float, typer.Option("--idle-seconds", help="A silent HTTP connection is closed then.")
    ] = 60.0,
) -> None:
    """Take rows in for Spark; print one line of JSON when ready, end with SIGTERM."""
    from tether.sources.gateway.config import GatewayConfig  # noqa: PLC0415 - starts quicker
    from tether.sources.gateway.processes import serve_together  # noqa: PLC0415
    from tether.sources.gateway.server import serve  # noqa: PLC0415

    config = GatewayConfig(
        store=store.absolute(),
        listen=listen,
        http=http or None,
        max_lost=_amount("--max-lost", max_lost),
        max_unacked=_amount("--max-unacked", max_unacked),
        producers=producers,
        streams=dict(_stream(one) for one in stream or []),
        open=not only,
        token=_token(token_file),
        certificate=certificate,
        key=key,
        memory_bytes=memory_bytes,
        store_bytes=store_bytes,
        batch_bytes=batch_bytes,
        connections=connections,
        idle_seconds=idle_seconds,
    )
    if processes > 1:
        serve_together(config, processes, lambda line: print(line, flush=True))
    else:
        serve(config, lambda line: print(line, flush=True))


def _amount(name: str, text: str) -> float:
    try:
        return math.inf if text == "inf" else float(text)
    except ValueError:
        raise BadValueError(
            f"{name} {text!r} is not a number of items.", do="Give a number, or inf."
        ) from None


def _stream(text: str) -> tuple[str, str]:
    name, equals, schema = text.partition("=")
    if not equals or not schema.strip():
        raise BadValueError(
            f"--stream {text!r} does not say its columns.",
            do="Write --stream 'clicks=user bigint, amount double'.",
        )
    return name.strip(), schema.strip()


def _token(path: Path | None) -> str | None:
    # In a file or the environment: a command line can be read by every user of the machine.
    if path is None:
        return os.environ.get("TETHER_GATEWAY_TOKEN") or None
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadValueError(
            "The token cannot be read.", why=str(error), do="Check --token-file."
        ) from error
