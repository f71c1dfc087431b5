"""`plan` and `launch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainer_runtime.core.protocol.command import command, option
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Host, IdempotencyKey, Sets, Spec
from trainmaster.cli.run_service import ask
from trainmaster.errors.errors import UsageError
from trainmaster.home.user_paths import user_path

Trace = Annotated[
    bool,
    typer.Option(
        "--trace",
        help="The memory of a step of the very script, in place of the formulas': traced here by "
        "PyTorch, without data, weights or a GPU.",
    ),
]


def plan(
    spec: Spec,
    host: Host = None,
    sets: Sets = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="GPU:COUNT,...",
            help="Machines that needn't be there: h100:8, 'a100-80gb:1,h100:8', kaggle, offers.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="DIR",
            help="A folder for the plan's documents: computing, data, training, monitoring, "
            "a picture, the framework's files.",
        ),
    ] = None,
    trace: Trace = False,
    as_json: AsJson = False,
) -> None:
    """Resolve a spec and estimate what it takes; starts nothing."""
    from trainmaster.cli.views import plan as plan_views  # noqa: F401  (what people see of the answer)
    from trainmaster.runs.planning.plan_run import plan_run

    folder = None if write is None else user_path(write, "--write")
    if on is not None:
        from trainmaster.machines.renting.plan_on import plan_on

        emit(
            ask(
                lambda workspace: plan_on(
                    workspace, spec, on, sets=sets or (), write=folder, trace=trace
                )
            ),
            as_json,
        )
        return
    emit(
        ask(
            lambda workspace: plan_run(
                workspace, spec, host=host, sets=sets or (), write=folder, trace=trace
            )
        ),
        as_json,
    )


def launch(
    spec: Spec,
    *,
    host: Host = None,
    sets: Sets = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="FIELD=VALUE,...",
            help="A run for each value, at Slurm as one array of jobs. Repeatable.",
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option("--at-once", min=1, help="With --vary: the most that train at a time."),
    ] = None,
    smoke: Annotated[
        str | None,
        typer.Option(
            "--smoke",
            metavar="[=only]",
            help="Rehearse it on its host over 100 steps, or 3 % of them, and continue once that "
            "has passed; `--smoke=only` stops there.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only plan, as `plan` does.")] = False,
    trace: Trace = False,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Start a training, detached; returns once it is on its way."""
    _refuse_unfitting(vary or [], at_once, dry_run)
    if trace and (vary or smoke is not None):
        raise UsageError(
            "BAD_ARGUMENT",
            "--trace is for the plan of a single run that is launched at once.",
            f"Trace it by {command('plan', 'SPEC', '--trace')}, and leave it out here.",
            field="--trace",
        )
    if smoke is not None and not dry_run:
        _refuse_other_smoke(smoke, vary or [])
        from trainmaster.cli.commands.rehearse import begin_rehearsal

        begin_rehearsal(
            spec,
            smoke,
            host=host,
            sets=sets or (),
            idempotency_key=idempotency_key,
            as_json=as_json,
        )
        return
    if dry_run:
        plan(spec, host, sets, trace=trace, as_json=as_json)
        return
    if vary:
        from trainmaster.runs.launch.launch_array import launch_array

        runs = ask(
            lambda workspace: launch_array(
                workspace,
                spec,
                vary,
                at_once=at_once,
                host=host,
                sets=sets or (),
                idempotency_key=idempotency_key,
            )
        )
        emit(runs, as_json)
        return
    from trainmaster.runs.launch import launch as service

    answer = ask(
        lambda workspace: service.launch(
            workspace,
            spec,
            host=host,
            sets=sets or (),
            idempotency_key=idempotency_key,
            trace=trace,
        )
    )
    emit(answer, as_json)


def _refuse_unfitting(vary: list[str], at_once: int | None, dry_run: bool) -> None:
    if at_once and not vary:
        raise UsageError(
            "BAD_ARGUMENT",
            "--at-once limits how many runs of --vary train at a time, and --vary is not given.",
            f"Add {option('--vary', 'FIELD=VALUE,VALUE')}, or leave --at-once out.",
            field="--at-once",
        )
    if dry_run and vary:
        raise UsageError(
            "BAD_ARGUMENT",
            "--dry-run plans a single run, and --vary is for several.",
            f"Plan one of them: {command('plan', 'SPEC', '--set', 'FIELD=VALUE')}.",
            field="--vary",
        )


def _refuse_other_smoke(smoke: str, vary: list[str]) -> None:
    if smoke not in ("first", "only") or vary:
        raise UsageError(
            "BAD_ARGUMENT",
            "--smoke rehearses a single run" if vary else f"--smoke can't be {smoke!r}.",
            f"Write {option('--smoke')}, or {option('--smoke=only')} to stop after the rehearsal.",
            field="--smoke",
        )


def render(
    spec: Spec,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    *,
    host: Host = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Write the folder that a launch would place, with its data; starts nothing.

    It trains by `sh train.sh` wherever it is copied to, with Python and PyTorch alone.
    """
    from trainmaster.cli.views import plan as plan_views  # noqa: F401  (what people see of the answer)
    from trainmaster.runs.export.render_spec import render_spec

    target = user_path(folder, "folder")
    emit(
        ask(lambda workspace: render_spec(workspace, spec, target, host=host, sets=sets or ())),
        as_json,
    )


def export(
    spec: Spec,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    *,
    to: Annotated[
        str,
        typer.Option("--to", help="slurm, skypilot, kubernetes or docker-compose."),
    ],
    image: Annotated[
        str | None,
        typer.Option("--image", help="The container's, for kubernetes and docker-compose."),
    ] = None,
    host: Host = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Write a folder that another engine trains, without our supervision; starts nothing.

    It is the rendered folder with a batch script, a SkyPilot task, a JobSet or a compose file.
    `--set compute.gpu=h100` plans for a GPU that no host here has.
    """
    from trainmaster.cli.views import plan as plan_views  # noqa: F401  (what people see of the answer)
    from trainmaster.runs.export.export import export_spec

    target = user_path(folder, "folder")
    emit(
        ask(
            lambda workspace: export_spec(
                workspace, spec, target, to=to, image=image, host=host, sets=sets or ()
            )
        ),
        as_json,
    )
