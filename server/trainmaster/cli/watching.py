"""`runs`, `status`, `metrics` and `wait`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.asking import ask
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Cursor, Run, split_commas

# As long as a night's wait is split into by the answers' own `next_step`.
LONGEST_WAIT_S = 14400.0
_CURVE_POINTS = 24


def runs(
    state: Annotated[str | None, typer.Option("--state", help="Only runs in this state.")] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="KEY=VALUE", help="Only runs with this label.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    from trainmaster.query import list_runs

    emit(
        ask(lambda workspace: list_runs(workspace, state=state, label=label, limit=limit)), as_json
    )


def status(
    run: Run,
    detail: Annotated[
        bool, typer.Option("--detail", help="Also attempts, telemetry and the run's folder.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="The whole page, training_status.md, as Markdown.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show how a run stands, and what to do next."""
    if page:
        _page(run, as_json)
        return
    from trainmaster.query import get_status

    answer = ask(lambda workspace: get_status(workspace, run, detail=detail))
    emit(answer, as_json)
    if not as_json and "loss" in answer.metrics:
        metrics([answer.run_id], ["loss"], _CURVE_POINTS)


def _page(run: str, as_json: bool) -> None:
    from trainmaster.cli import status_views  # noqa: F401  (what people see of the answer)
    from trainmaster.status_page import get_page

    emit(ask(lambda workspace: get_page(workspace, run)), as_json)


def metrics(
    compared: Annotated[list[str], typer.Argument(metavar="RUN...", help="One run, or several.")],
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Only this metric. Repeatable.")
    ] = None,
    points: Annotated[
        int, typer.Option("--points", min=1, help="Reduce each series to so many points.")
    ] = 20,
    everything: Annotated[bool, typer.Option("--all", help="Every point, not reduced.")] = False,
    as_json: AsJson = False,
) -> None:
    """Summarise and compare metrics."""
    from trainmaster.query import query_metrics

    answer = ask(
        lambda workspace: query_metrics(
            workspace, compared, keys=key or (), points=points, everything=everything
        )
    )
    emit(answer, as_json)


def wait(
    run: Run,
    until: Annotated[
        str,
        typer.Option(
            metavar="EVENT,...",
            help="Any of: checkpoint eval phase finding running recovering completed failed "
            "stopped end step:N.",
        ),
    ] = "end",
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds after which to give up.")
    ] = LONGEST_WAIT_S,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Wait for an event. Exit code 0: it came; 3: the run ended otherwise; 4: time-out."""
    from trainmaster.cli.waiting import showing_progress
    from trainmaster.wait import exit_code, wait_for_event

    wanted = split_commas(until)
    with showing_progress(as_json) as on_progress:
        answer = ask(
            lambda workspace: wait_for_event(
                workspace,
                run,
                until=wanted,
                timeout_s=timeout_s,
                cursor=cursor,
                on_progress=on_progress,
            ),
            tells_itself=True,
        )
    emit(answer, as_json)
    raise typer.Exit(exit_code(answer, wanted))
