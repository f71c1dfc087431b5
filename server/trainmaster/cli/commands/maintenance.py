"""Maintenance: `doctor`, `tick`, `replay`, and the unlisted commands of detached processes."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Run
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.answers.base import Answer


def doctor(
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is not in use here: SSH, Kaggle, providers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine; names a remedy for whatever is missing. Exit code 1 if a check fails."""
    from trainmaster.cli.doctor.checks import examine

    answer = ask(lambda workspace: examine(workspace, everything=everything))
    show(answer, as_json)
    raise typer.Exit(0 if answer.ok else 1)


def tick(
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="5m", help="How often a timer calls this; on record."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do what is due for every run and rented instance, once. Meant for a timer: see `keeper`.
    Exit code 1 if any of it failed, other than by a host or provider that gave no answer."""
    from trainmaster.keeper import tick as service
    from trainmaster.store.action_log import discard_action

    answer = ask(lambda workspace: service.tick(workspace, every=every), replays=False, ends=True)
    if not any(row.did for row in (*answer.runs, *(answer.instances or ()))):
        discard_action()
    show(answer, as_json)
    raise typer.Exit(1 if service.has_failed(answer) else 0)


def tick_part(
    part: Annotated[str, typer.Argument(metavar="PART", help="instances or runs.")],
    by_timer: Annotated[
        bool, typer.Option("--by-timer", help="What was refused waits for its time.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Do one part of a tick. Started by `tick`."""
    from trainmaster.keeper import parts

    is_runs = part == "runs"
    runs = partial(parts.tick_runs, by_timer=by_timer)
    service = runs if is_runs else parts.tick_instances
    show(ask(service, replays=is_runs, whole=True, ends=True), as_json)


def replay(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only this run, quarantined or not.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild the metrics database from the mirrored files; a quarantined run is read again."""
    from trainmaster.sync import replay as service

    show(ask(lambda workspace: service.replay(workspace, run), replays=False), as_json)


def rebuild(
    lock_descriptor: Annotated[
        int | None, typer.Option("--lock-descriptor", help="The lock, which it holds to its end.")
    ] = None,
) -> None:
    """Rebuild a new metrics database to its end. Started by itself where that takes long."""
    from trainmaster.sync.rebuild import rebuild_holding
    from trainmaster.sync.workspace import open_workspace

    del lock_descriptor
    with open_workspace(os.environ) as workspace:
        rebuild_holding(workspace)


def read_log() -> None:
    """Read a long log, as requested on standard input. Started by itself where that takes long."""
    from trainmaster.metrics.reading_process import answer_request

    answer_request()


def transfer(
    run: Run,
    lock_descriptor: Annotated[
        int | None, typer.Option("--lock-descriptor", help="The run's lock, where it is held.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Carry data between this machine and a run's host. Started by itself where it is due."""
    from trainmaster.runs.upkeep.advance import advance
    from trainmaster.transfers import transfer as service

    descriptor = lock_descriptor
    emit(
        ask(
            lambda workspace: service.transfer(
                workspace, run, lock_descriptor=descriptor, advance=advance
            ),
            shows_progress=True,
            whole=True,
        ),
        as_json,
    )


def provision_worker(
    tag: Annotated[str, typer.Argument(metavar="TAG", help="The tag of a rented instance.")],
    lock_descriptor: Annotated[
        int | None, typer.Option("--lock-descriptor", help="The instance's lock, if it is held.")
    ] = None,
) -> None:
    """Advance a rented instance until no step is pending. Started automatically."""
    from trainmaster.machines.renting import instances as service

    descriptor = lock_descriptor
    ask(
        lambda workspace: service.provision_worker(workspace, tag, lock_descriptor=descriptor),
        shows_progress=True,
        replays=False,
        ends=True,
    )


def show(answer: Answer, as_json: bool) -> None:
    """Print an answer of these commands, or of `keeper`."""
    from trainmaster.cli.views import maintenance  # noqa: F401 (it registers the view)

    emit(answer, as_json)
