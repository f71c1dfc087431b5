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
    compiled: Annotated[
        bool, typer.Option("--compiled", help="For --speed: what is stated is compiled.")
    ] = False,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="For --speed: the trainer profiles its next 10 steps."),
    ] = False,
    keep_trace: Annotated[
        bool, typer.Option("--keep-trace", help="For --profile: its trace is kept, up to 64 MiB.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", help="For --profile, at most 3600."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong. Lists the first cause first, with evidence and patches."""
    import trainmaster.cli.views.diagnosis  # noqa: F401 - registers what people see of it
    from trainmaster.runs import diagnose as service
    from trainmaster.runs.diagnosis.profile import ProfileOptions
    from trainmaster.runs.diagnosis.speed import StatedSpeed

    if not (run_or_file or speed):
        raise typer.BadParameter("Name a run or a log file; --speed takes none.")
    if (profile and not (speed and run_or_file)) or (keep_trace and not profile):
        raise typer.BadParameter("A profile is taken of a run: RUN --speed --profile.")
    options = ProfileOptions(keep_trace, None if timeout is None else max(1.0, min(timeout, 3600)))
    stated = StatedSpeed(params, tokens_per_s, gpus, compiled) if speed else None

    answer = ask(
        lambda workspace: service.diagnose(
            workspace,
            run_or_file,
            everything=everything,
            cursor=cursor,
            pattern=pattern_text(pattern),
            speed=stated,
            profile=options if profile else None,
        )
    )
    emit(answer, as_json)
