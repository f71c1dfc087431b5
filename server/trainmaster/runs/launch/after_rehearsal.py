"""What follows a rehearsal: the training itself, where it was asked for and the verdict is good."""

from __future__ import annotations

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.rehearsal import RehearsalAnswer
from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan.rehearsal import whole_again
from trainmaster.runs.launch.launch import start_run
from trainmaster.runs.rehearsal.report import key_of, report_of
from trainmaster.store.failures import Failures
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace


async def continue_to_training(workspace: Workspace, run: str) -> RehearsalAnswer:
    """Launch the training of a rehearsal that has passed, unless that was done; its report.

    Raises:
        TrainmasterError: as `launch` does; the next call tries again.
    """
    view = load_view(workspace, run)
    report = report_of(workspace, view)
    record = view.run.plan["rehearsal"]
    if record["continues"] and report.verdict == "passed" and report.launched is None:
        planned = whole_again(view.run.spec, view.run.plan)
        begin = Desired(DesiredState.RUNNING, generation=1)
        await start_run(workspace, planned, begin, key_of(view.run))
        report = report_of(workspace, view)
    if report.verdict is not None:
        workspace.home.awaited_rehearsal(view.run.run_id).unlink(missing_ok=True)
    return report


async def continue_where_due(workspace: Workspace, failures: Failures | None = None) -> None:
    """Do so for each rehearsal that has ended since; one that fails stops no other."""
    folder = workspace.home.awaited_rehearsal("any").parent
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        try:
            if load_view(workspace, path.name).ended:
                await continue_to_training(workspace, path.name)
        except TrainmasterError as error:
            if error.code == "RUN_NOT_FOUND":
                path.unlink(missing_ok=True)
            elif failures is not None:
                failures.add(path.name, error)
