"""`overview`, which `trainmaster` alone calls too."""

from __future__ import annotations

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Cursor
from trainmaster.cli.run_service import ask


def overview(cursor: Cursor = None, as_json: AsJson = False) -> None:
    """Show what needs attention, what runs, and what has ended, in a line each.

    `trainmaster` alone does the same.
    """
    import trainmaster.cli.views.overview  # noqa: F401 - registers what people see of it
    from trainmaster.runs.overview.overview import overview as service

    emit(ask(lambda workspace: service(workspace, cursor=cursor)), as_json)
