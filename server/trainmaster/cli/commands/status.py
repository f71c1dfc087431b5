"""`runs`, `status`, `metrics` and `wait`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainmaster.cli.completions import run_names
from trainmaster.cli.output import emit, emit_lines
from trainmaster.cli.parameters import AsJson, Cursor, Pattern, Run, pattern_text, split_commas
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.answers.metrics import MetricsAnswer
    from trainmaster.answers.runs import WaitAnswer
    from trainmaster.answers.status import StatusAnswer
    from trainmaster.sync.workspace import Workspace

# As long as a night's wait is split into by the answers' own `next_step`.
LONGEST_WAIT_S = 14400.0
_CURVE_POINTS = 24


def runs(
    state: Annotated[str | None, typer.Option("--state", help="Only runs in this state.")] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="KEY=VALUE", help="Only runs with this label.")
    ] = None,
    code: Annotated[
        str | None, typer.Option("--code", metavar="COMMIT", help="Only programs of this commit.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of runs.")] = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    from trainmaster.runs.lists.list_runs import list_runs

    answer = ask(
        lambda workspace: list_runs(
            workspace, state=state, label=label, code=code, limit=limit, cursor=cursor
        )
    )
    emit(answer, as_json)


def status(
    run: Run,
    detail: Annotated[
        bool, typer.Option("--detail", help="Also risks, attempts, telemetry and the folder.")
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
    from trainmaster.runs.status.status import get_status

    async def with_curve(workspace: Workspace) -> tuple[StatusAnswer, MetricsAnswer | None]:
        run_status = await get_status(workspace, run, detail=detail)
        if as_json or "loss" not in run_status.metrics:
            return run_status, None
        from trainmaster.runs.metrics.query_metrics import query_metrics

        runs = [run_status.run_id]
        return run_status, await query_metrics(workspace, runs, keys=["loss"], points=_CURVE_POINTS)

    answer, curve = ask(with_curve)
    emit(answer, as_json)
    if curve is not None:
        emit(curve, as_json)


def _page(run: str, as_json: bool) -> None:
    from trainmaster.cli.views import status_page  # noqa: F401  (what people see of the answer)
    from trainmaster.runs.status.status_page import get_page

    emit(ask(lambda workspace: get_page(workspace, run)), as_json)


Compared = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN|FILE]...",
        help="Runs, or log files of any training. None: the best runs, by method and data.",
    ),
]
Key = Annotated[list[str] | None, typer.Option("--key", help="Only this metric. Repeatable.")]
Points = Annotated[
    int, typer.Option("--points", min=1, help="Reduce each series to so many points.")
]
Everything = Annotated[bool, typer.Option("--all", help="Every point, not reduced.")]
FromStep = Annotated[int | None, typer.Option("--from", metavar="STEP", help="From this step on.")]
ToStep = Annotated[int | None, typer.Option("--to", metavar="STEP", help="Up to this step.")]
Since = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="The run's last 30m, 2h, ...; also of gpu_util."),
]
AtStep = Annotated[
    int | None, typer.Option("--at", metavar="STEP", help="The newest point by this step.")
]
Ema = Annotated[
    float | None,
    typer.Option("--ema", metavar="WEIGHT", help="Moving average; weight of the past, as 0.9."),
]
Rate = Annotated[
    Literal["step", "second"] | None, typer.Option("--rate", help="Change per step or second.")
]
Along = Annotated[
    Literal["step", "tokens", "time"] | None,
    typer.Option("--x", help="Lay several runs side by side on this."),
]
RankedLabel = Annotated[
    str | None, typer.Option("--label", metavar="KEY=VALUE", help="Rank only these runs.")
]
RankedHost = Annotated[str | None, typer.Option("--host", help="Rank only runs there.")]
RankedFramework = Annotated[
    str | None, typer.Option("--framework", help="Rank only runs of this framework.")
]
AsCsv = Annotated[bool, typer.Option("--csv", help="The points as lines of run,metric,step,value.")]


def metrics(
    compared: Compared = None,
    *,
    key: Key = None,
    points: Points = 20,
    everything: Everything = False,
    from_step: FromStep = None,
    to_step: ToStep = None,
    since: Since = None,
    at: AtStep = None,
    ema: Ema = None,
    rate: Rate = None,
    axis: Along = None,
    label: RankedLabel = None,
    host: RankedHost = None,
    framework: RankedFramework = None,
    pattern: Pattern = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
) -> None:
    """Summarise and compare metrics, of runs or of any training's log."""
    from trainmaster.cli.views.points import csv_lines, point_lines
    from trainmaster.metrics.rank import Among
    from trainmaster.metrics.selection import selection
    from trainmaster.runs.metrics.query_metrics import query_metrics

    part = selection(
        from_step=from_step, to_step=to_step, since=since, at=at, ema=ema, rate=rate, axis=axis
    )
    answer = ask(
        lambda workspace: query_metrics(
            workspace,
            compared or (),
            keys=key or (),
            points=points,
            everything=everything,
            part=part,
            among=Among(label, host, framework),
            pattern=pattern_text(pattern),
        )
    )
    if as_csv and not as_json:
        emit_lines(csv_lines(answer))
    elif everything and not as_json:
        emit_lines(point_lines(answer))
    else:
        emit(answer, as_json)


def wait(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Any of these; every open run without.",
            autocompletion=run_names,
        ),
    ] = None,
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
    """Wait for an event; meanwhile, do what is due for the runs, as the keeper would.

    Exit code 0: it came; 3: the run ended otherwise, or all had ended; 4: time-out. Of several
    runs, --cursor of the last answer continues with what came after it, each event once.
    """
    from trainmaster.cli.progress_bar import showing_progress
    from trainmaster.runs.events.wait import exit_code
    from trainmaster.runs.events.wait_any import wait_for_runs
    from trainmaster.runs.upkeep.maintain import maintaining

    wanted = split_commas(until)

    async def wait_here(workspace: Workspace) -> WaitAnswer:
        awaited = runs or [run.run_id for run in workspace.control.runs(only_open=True)]
        async with maintaining(workspace, *awaited):
            return await wait_for_runs(
                workspace,
                runs or (),
                until=wanted,
                timeout_s=timeout_s,
                cursor=cursor,
                on_progress=on_progress,
            )

    with showing_progress(as_json) as on_progress:
        answer = ask(wait_here, shows_progress=True, whole=True)
    emit(answer, as_json)
    raise typer.Exit(exit_code(answer, wanted))
