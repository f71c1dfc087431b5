"""`doctor`, `tick`, `replay` and, unlisted, `transfer`: what keeps Trainmaster itself well."""

from __future__ import annotations

from typing import Annotated

import typer

from trainmaster.cli.asking import ask
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, Run


def doctor(as_json: AsJson = False) -> None:
    """Check this machine; names a remedy for whatever is missing. Exit code 1 if that is needed."""
    from trainmaster.doctor import examine

    answer = ask(examine)
    emit(answer, as_json)
    raise typer.Exit(0 if answer.ok else 1)


def tick(as_json: AsJson = False) -> None:
    """Do what is due for every run, once. Meant for a timer."""
    from trainmaster import advance as service

    emit(ask(service.tick), as_json)


def replay(as_json: AsJson = False) -> None:
    """Rebuild the metrics database. Everything in it comes from the mirrored files."""
    from trainmaster import replay as service

    emit(ask(service.replay), as_json)


def transfer(
    run: Run,
    lock_descriptor: Annotated[
        int | None, typer.Option("--lock-descriptor", help="The run's lock, where it is held.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Carry data between this machine and a run's host. Started by itself where it is due."""
    from trainmaster import transfer as service

    descriptor = lock_descriptor
    emit(
        ask(
            lambda workspace: service.transfer(workspace, run, lock_descriptor=descriptor),
            tells_itself=True,
        ),
        as_json,
    )
