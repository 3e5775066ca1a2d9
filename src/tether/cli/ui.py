"""``tether ui``: the live page of a query, from its backup directory; running, finished or dead."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tether.cli.inspect import storage_options_of


def ui(
    backup: Annotated[
        str,
        typer.Argument(help="Backup directory, or checkpoint of a bounded SQL query; path or URL."),
    ],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; other than loopback: with a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", help="Port; the first free one from 4060 by default.")
    ] = None,
    token: Annotated[str | None, typer.Option("--token", help="Ask for this token.")] = None,
    options: Annotated[
        str, typer.Option("--options", help="Options of the file system, as JSON.")
    ] = "{}",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the address as a JSON object.")
    ] = False,
) -> None:
    """Serve the live page of a query until Ctrl-C."""
    storage_options = storage_options_of(options)
    from tether.ui import serve_directory  # noqa: PLC0415 - needs an extra

    with serve_directory(
        backup, storage_options or None, host=host, port=port, token=token, quiet=as_json
    ) as page:
        if as_json:
            print(json.dumps({"address": page.address}), flush=True)
        page.wait()
