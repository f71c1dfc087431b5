"""`diagnose`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Cursor, Pattern, pattern_text
from trainmaster.cli.run_service import ask


def diagnose(
    run_or_file: Annotated[
        str, typer.Argument(metavar="[RUN|FILE]", help="A run, or a log file.")
    ] = "",
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is over, and earlier attempts.")
    ] = False,
    pattern: Pattern = None,
    cursor: Cursor = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="How fast a run is, and what would make it faster.")
    ] = False,
    params: Annotated[
        str | None, typer.Option("--params", help="For --speed: the model's parameters, as 7B.")
    ] = None,
    tokens_per_s: Annotated[
        float | None, typer.Option("--tokens-per-s", help="For --speed, of all GPUs.")
    ] = None,
    gpus: Annotated[str | None, typer.Option("--gpus", help="For --speed, as a100:8.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong. Lists the first cause first, with evidence and patches."""
    import trainmaster.cli.views.diagnosis  # noqa: F401 - registers what people see of it
    from trainmaster.runs import diagnose as service
    from trainmaster.runs.diagnosis.speed import StatedSpeed

    if not (run_or_file or speed):
        raise typer.BadParameter("Name a run or a log file; --speed takes none.")
    stated = StatedSpeed(params, tokens_per_s, gpus) if speed else None

    answer = ask(
        lambda workspace: service.diagnose(
            workspace,
            run_or_file,
            everything=everything,
            cursor=cursor,
            pattern=pattern_text(pattern),
            speed=stated,
        )
    )
    emit(answer, as_json)
