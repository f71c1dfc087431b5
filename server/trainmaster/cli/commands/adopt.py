"""`adopt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, IdempotencyKey, Sets
from trainmaster.cli.run_service import ask


def adopt(
    folder: Annotated[
        str,
        typer.Argument(metavar="DIR", help="A training's output folder, or host:/path of one."),
    ],
    *,
    spec: Annotated[
        str | None, typer.Option("--spec", metavar="SPEC", help="The spec of the new run.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="PATH", help="The training data; everything else is read from DIR."
        ),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="latest|STEP", help="Which checkpoint it begins with.")
    ] = "latest",
    host: Annotated[
        str | None, typer.Option("--host", help="The host that DIR is on, and that trains.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What the run is to be called.")
    ] = None,
    sets: Sets = None,
    write: Annotated[
        Path, typer.Option("--write", metavar="FILE", help="Where the starting spec is written.")
    ] = Path("adopted.yaml"),
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="An interpreter there that has PyTorch."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check only; write and start nothing.")
    ] = False,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Continue from the output of nanoGPT, LitGPT or HF. Verifies its checkpoints first."""
    from trainmaster.runs.adopt import AdoptOptions
    from trainmaster.runs.adopt import adopt as service

    options = AdoptOptions(
        spec=spec,
        data=data,
        host=host,
        name=name,
        sets=sets or (),
        start=start,
        python=python,
        dry_run=dry_run,
        write=write,
    )
    emit(
        ask(lambda workspace: service(workspace, folder, options, idempotency_key=idempotency_key)),
        as_json,
    )
