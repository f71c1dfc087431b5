"""`diagnose`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Cursor, Pattern, pattern_text
from trainmaster.cli.run_service import ask


def diagnose(
    run_or_file: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run, or a log file.")],
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is over, and earlier attempts.")
    ] = False,
    pattern: Pattern = None,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong. Lists the first cause first, with evidence and patches."""
    import trainmaster.cli.views.diagnosis  # noqa: F401 - registers what people see of it
    from trainmaster.runs import diagnose as service

    answer = ask(
        lambda workspace: service.diagnose(
            workspace,
            run_or_file,
            everything=everything,
            cursor=cursor,
            pattern=pattern_text(pattern),
        )
    )
    emit(answer, as_json)
