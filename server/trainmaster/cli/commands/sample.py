"""`sample`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Run
from trainmaster.cli.run_service import ask


def sample(
    run: Run,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", metavar="TEXT", help="What to continue. Without: the texts on record."
        ),
    ] = None,
    *,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help="final, best, latest, ema, averaged, a step."),
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="At most 2,048.")] = 128,
    temperature: Annotated[float, typer.Option("--temperature", help="0: the likeliest.")] = 0.8,
    seed: Annotated[int, typer.Option("--seed", help="Of the first text; then the next.")] = 1337,
    count: Annotated[int, typer.Option("--count", help="Texts, at most 8.")] = 1,
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is a user's message, in the chat template.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="At most 600.")
    ] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Let a run's model write text, or show what it wrote while it was trained."""
    from trainer_runtime.core.answers.sampled import SampleRequest
    from trainmaster.runs import sample as service

    if prompt is None:
        emit(ask(lambda workspace: service.recorded_samples(workspace, run)), as_json)
        return
    request = SampleRequest(prompt, start, max_tokens, temperature, seed, count, chat, timeout)
    emit(ask(lambda workspace: service.sample_run(workspace, run, request)), as_json)
