"""`rehearse`, and what `launch --smoke` does."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from trainer_runtime.core.protocol.command import command
from trainmaster.cli.commands.status import LONGEST_WAIT_S
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Host, IdempotencyKey, Sets
from trainmaster.cli.run_service import ask
from trainmaster.errors.advice import for_face
from trainmaster.errors.errors import UsageError

if TYPE_CHECKING:
    from trainmaster.answers.rehearsal import RehearsalAnswer
    from trainmaster.answers.runs import LaunchAnswer
    from trainmaster.cli.progress_bar import Listener
    from trainmaster.sync.workspace import Workspace

FAILED = 3
SMOKE = ("first", "only")


def rehearse(
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="Path of a spec, or its YAML text.")
    ] = None,
    *,
    report: Annotated[
        str | None,
        typer.Option("--report", metavar="RUN", help="Only report on one that was started."),
    ] = None,
    host: Host = None,
    sets: Sets = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Try out a training at a tiny width, here or on a cheap host, before anything is rented.

    Packages, data to its end, tokenizer, secrets, one save and resume, evaluation and export. Exit
    code 3: it failed.
    """
    if (spec is None) == (report is None):
        raise UsageError(
            "BAD_ARGUMENT",
            "rehearse takes a spec, or --report with the run of an earlier rehearsal.",
            f"Give one of them: {command('rehearse', 'SPEC')}.",
        )
    if report is not None:
        run = report

        async def earlier(_: Workspace) -> str:
            return run

        _finish(earlier, as_json)
        return
    assert spec is not None
    begin_rehearsal(
        spec, "tiny", host=host, sets=sets or (), idempotency_key=idempotency_key, as_json=as_json
    )


def begin_rehearsal(
    spec: str,
    what: str,
    *,
    host: str | None,
    sets: Sequence[str],
    idempotency_key: str | None,
    as_json: bool,
) -> None:
    """Start a rehearsal (`tiny`, or one of `SMOKE`), wait for its end, and report on it."""
    from trainmaster.runs.launch.rehearse import Rehearsal, launch_rehearsal

    how = Rehearsal("tiny" if what == "tiny" else "smoke", continues=what == "first")

    async def begin(workspace: Workspace) -> str:
        answer: LaunchAnswer = await launch_rehearsal(
            workspace, spec, how, host=host, sets=sets, idempotency_key=idempotency_key
        )
        later = command("rehearse", "--report", answer.run_id)
        for line in (*(answer.warnings or ()), f"{answer.note} {later} reports on it at any time."):
            print(for_face(line), file=sys.stderr)
        return answer.run_id

    _finish(begin, as_json, spec)


def _finish(
    begin: Callable[[Workspace], Awaitable[str]], as_json: bool, spec: str | None = None
) -> None:
    from trainmaster.cli.progress_bar import showing_progress
    from trainmaster.cli.views import rehearsal as rehearsal_views  # noqa: F401  (of the answer)

    with showing_progress(as_json) as on_progress:
        answer = ask(
            lambda workspace: _until_judged(workspace, begin, on_progress),
            shows_progress=True,
            whole=True,
        )
    if spec is not None and "\n" not in spec:
        named = answer.next_step.replace(" SPEC", f" {spec}")
        answer = answer.model_copy(update={"next_step": named})
    emit(answer, as_json)
    if answer.verdict == "failed":
        raise typer.Exit(FAILED)


async def _until_judged(
    workspace: Workspace,
    begin: Callable[[Workspace], Awaitable[str]],
    on_progress: Listener | None,
) -> RehearsalAnswer:
    from trainmaster.runs.events.wait import wait_for_event
    from trainmaster.runs.launch.after_rehearsal import continue_to_training
    from trainmaster.runs.rehearsal.report import report_rehearsal
    from trainmaster.runs.upkeep.maintain import maintaining

    run = await begin(workspace)
    await report_rehearsal(workspace, run)  # refuses what is none
    async with maintaining(workspace, run):
        await wait_for_event(workspace, run, timeout_s=LONGEST_WAIT_S, on_progress=on_progress)
    return await continue_to_training(workspace, run)
