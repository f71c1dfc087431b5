"""`mcp`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.parameters import AsJson, Toolsets, split_commas
from trainmaster.errors.errors import UsageError

_ADDRESS = "127.0.0.1"
_PORT = 8765


def mcp(  # noqa: PLR0917 (typer takes options so)
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Only tools that change nothing, and nothing beside."),
    ] = False,
    toolsets: Toolsets = "",
    tools: Annotated[
        str,
        typer.Option(
            "--tools", metavar="NAME,...", help="These tools; beside --toolsets where it is given."
        ),
    ] = "",
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP instead; see docs/server.md.")
    ] = False,
    address: Annotated[
        str, typer.Option("--address", metavar="IP", help="With --http: where to listen.")
    ] = _ADDRESS,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="With --http; 0 takes a free one.")
    ] = _PORT,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="With --http: for TLS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The certificate's key.")
    ] = None,
    no_auth: Annotated[
        bool,
        typer.Option("--no-auth", help="With --http, on loopback: ask nobody for a token."),
    ] = False,
    _as_json: AsJson = False,
) -> None:
    """Serve the MCP tools on stdin and stdout, or over HTTP. Maintains the home's runs while it
    lives, unless each of its tools only reads.
    """
    from trainmaster.calls.ending import run_server

    offered = {"toolsets": split_commas(toolsets), "tools": split_commas(tools)}
    if not http:
        if no_auth or certificate or key or (address, port) != (_ADDRESS, _PORT):
            raise UsageError(
                "BAD_ARGUMENT",
                "--address, --port, --certificate, --key and --no-auth are about HTTP.",
                "Add --http, or leave them out.",
            )
        from trainmaster.mcp import serve_stdio

        run_server(serve_stdio(os.environ, read_only=read_only, **offered))
        return
    from trainmaster.mcp.http import Listening, serve_http

    listening = Listening(address, port, certificate, key, authorized=not no_auth)

    def announce(url: str) -> None:
        print(url, flush=True)

    run_server(serve_http(os.environ, listening, announce, read_only=read_only, **offered))
