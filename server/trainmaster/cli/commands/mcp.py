"""`mcp`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from trainmaster.cli.parameters import AsJson, Toolsets, split_commas


def mcp(
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
    _as_json: AsJson = False,
) -> None:
    """Serve the MCP tools on stdin and stdout. Maintains the home's runs while it lives, unless
    each of its tools only reads.
    """
    import asyncio

    from trainmaster.mcp import serve_stdio

    served = serve_stdio(
        os.environ,
        read_only=read_only,
        toolsets=split_commas(toolsets),
        tools=split_commas(tools),
    )
    asyncio.run(served)
