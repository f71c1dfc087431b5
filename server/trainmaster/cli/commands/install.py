"""`install`: connects the program of a coding agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Toolsets, split_commas


def install(
    client: Annotated[
        str,
        typer.Argument(metavar="CLIENT", help="claude-code, codex, cursor, vscode or gemini."),
    ],
    project: Annotated[
        Path | None,
        typer.Option(
            "--project",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="For that project alone, instead of for all of yours.",
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Only tools that change nothing.")
    ] = False,
    toolsets: Toolsets = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add the MCP server and the skills to a coding agent's configuration."""
    import json

    from trainmaster.answers.install import InstallAnswer
    from trainmaster.cli.agents.installation import carry_out, own_server, plan_installation
    from trainmaster.mcp.toolsets import chosen_tools

    chosen_tools(split_commas(toolsets), read_only=read_only)  # refuses unknown names
    options = [*(["--toolsets", toolsets] if toolsets else []), *(["--read-only"] * read_only)]
    server = own_server(options, os.environ)
    plan = plan_installation(client, server, project=project, user_home=Path.home())
    changed = bool(plan.changes)
    if changed and not dry_run:
        carry_out(plan)
    emit(
        InstallAnswer(
            client=plan.client.title,
            config=str(plan.config),
            entry=json.dumps(plan.client.entry(server)),
            skills=[str(folder) for folder in plan.skills] or None,
            changed=changed,
            written=changed and not dry_run,
        ),
        as_json,
    )
