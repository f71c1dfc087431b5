"""`average`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask
from trainmaster.errors.errors import UsageError
from trainmaster.home.user_paths import user_path

if TYPE_CHECKING:
    from trainmaster.answers.averages import AveragedAnswer
    from trainmaster.sync.workspace import Workspace


def average(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Ids, or unique beginnings.")],
    *,
    last: Annotated[
        int | None,
        typer.Option("--last", help="Of each, so many newest; by default 5, of several runs 1."),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="S,S,...", help="Of each, those steps."),
    ] = None,
    ema: Annotated[
        bool, typer.Option("--ema", help="Their averaged weights (checkpoint.ema) instead.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Bring the model there.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="At most 3600.")
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Average the weights of verified checkpoints, of one run or of several with equal shapes,
    into a model's folder."""
    from trainmaster.runs import average as service
    from trainmaster.runs import fetch as fetching

    chosen = service.ChosenCheckpoints(last, _numbers(steps), ema, max(5.0, min(timeout, 3600.0)))
    target = None if folder is None else user_path(folder, "to")

    async def whole(workspace: Workspace) -> AveragedAnswer:
        answer = await service.average_runs(workspace, runs, chosen)
        if target is None:
            return answer
        fetched = await fetching.fetch(workspace, answer.run_id, answer.path, target)
        return answer.model_copy(update={"folder": fetched.folder, "next_step": None})

    emit(ask(whole), as_json)


def _numbers(steps: str | None) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(step) for step in (steps or "").split(",") if step.strip()))
    except ValueError:
        raise UsageError(
            "BAD_ARGUMENT",
            f"`--steps` is {steps!r}.",
            "Give steps of checkpoints, for example 100,200.",
            field="steps",
        ) from None
