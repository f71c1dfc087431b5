"""`mcp`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from trainmaster.cli.parameters import AsJson, split_commas


def mcp(
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Only tools that change nothing, and nothing beside."),
    ] = False,
    toolsets: Annotated[
        str, typer.Option("--toolsets", metavar="NAME,...", help="Which toolsets to offer.")
    ] = "observe,operate,provision",
    _as_json: AsJson = False,
) -> None:
    """Serve the MCP tools on stdin and stdout. Maintains the home's runs while it lives."""
    import asyncio

    from trainmaster.mcp import serve_stdio

    served = serve_stdio(os.environ, read_only=read_only, toolsets=split_commas(toolsets))
    asyncio.run(served)
