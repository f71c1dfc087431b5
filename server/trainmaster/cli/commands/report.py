"""`report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.answers.diagnosis import FailureReport
    from trainmaster.sync.workspace import Workspace


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A log that ends in a failure.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Print a failure's text without names, to file it.

    Paths, users, hosts, addresses, repositories and tokens are replaced; packages, versions and
    messages stay. Nothing is sent.
    """
    import trainmaster.cli.views.diagnosis  # noqa: F401 - registers what people see of it
    from trainmaster.calls.work_thread import in_thread
    from trainmaster.metrics.log_file import readable
    from trainmaster.runs.diagnosis.failure_report import report_of

    async def reported(workspace: Workspace) -> FailureReport:
        return await in_thread(report_of, readable(workspace, str(file), "file"))

    emit(ask(reported), as_json)
