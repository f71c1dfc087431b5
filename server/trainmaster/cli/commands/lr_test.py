"""`lr-test`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainer_runtime.core.protocol.command import command
from trainmaster.cli.commands.plot import width
from trainmaster.cli.commands.status import LONGEST_WAIT_S
from trainmaster.cli.output import emit, is_for_a_person
from trainmaster.cli.parameters import AsJson, Host, Sets
from trainmaster.cli.run_service import ask
from trainmaster.errors.advice import for_face
from trainmaster.errors.errors import UsageError
from trainmaster.home.user_paths import user_path

if TYPE_CHECKING:
    from trainmaster.answers.lr_test import LrTestAnswer
    from trainmaster.cli.progress_bar import Listener
    from trainmaster.sync.workspace import Workspace


def lr_test(
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="Path of a spec, or its YAML text.")
    ] = None,
    *,
    lowest: Annotated[float, typer.Option("--from", help="The first rate.")] = 1e-6,
    highest: Annotated[float, typer.Option("--to", help="The last rate.")] = 1.0,
    steps: Annotated[int, typer.Option("--steps", help="Over how many steps it rises.")] = 100,
    report: Annotated[
        str | None,
        typer.Option("--report", metavar="RUN", help="Only report on a test that was started."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.png", help="Draw the curve into this file."),
    ] = None,
    host: Host = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Find a learning rate: a short run in which it rises until the loss diverges.

    The run is one like any other, with the label lr_test, and keeps no model.
    """
    from trainmaster.cli.progress_bar import showing_progress
    from trainmaster.runs.lr_test import launch_lr_test, report_lr_test
    from trainmaster.runs.metrics.plot import refuse_other_than_png

    if (spec is None) == (report is None):
        raise UsageError(
            "BAD_ARGUMENT",
            "lr-test takes a spec, or --report with the run of an earlier test.",
            f"Give one of them: {command('lr-test', 'SPEC')}.",
        )
    path = None if output is None else user_path(output, "--output")
    if path is not None:
        refuse_other_than_png(path)

    async def whole(workspace: Workspace, on_progress: Listener | None) -> LrTestAnswer:
        run = report
        if spec is not None:
            launched = await launch_lr_test(
                workspace, spec, host=host, sets=sets or (), rates=(lowest, highest), steps=steps
            )
            run = launched.run_id
            await _wait(workspace, run, on_progress)
        assert run is not None
        colourful = is_for_a_person(sys.stdout) and not as_json
        return await report_lr_test(
            workspace, run, spec=spec, path=path, dots=colourful, width=width()
        )

    with showing_progress(as_json) as on_progress:
        answer = ask(
            lambda workspace: whole(workspace, on_progress), shows_progress=True, whole=True
        )
    emit(answer, as_json)


async def _wait(workspace: Workspace, run: str, on_progress: Listener | None) -> None:
    from trainmaster.runs.events.wait import wait_for_event
    from trainmaster.runs.upkeep.maintain import maintaining

    later = command("lr-test", "--report", run)
    print(for_face(f"Launched {run}; {later} reports on it at any time."), file=sys.stderr)
    async with maintaining(workspace, run):
        await wait_for_event(workspace, run, timeout_s=LONGEST_WAIT_S, on_progress=on_progress)
