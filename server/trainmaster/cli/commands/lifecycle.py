"""`stop`, `resume`, `checkpoints` and `clean`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson, IdempotencyKey, Run, Sets, split_commas
from trainmaster.cli.run_service import ask
from trainmaster.errors.errors import UsageError


def stop(
    run: Run,
    *,
    after_session: Annotated[
        bool,
        typer.Option(
            "--after-session",
            help="At Kaggle: let the current session finish, and start no other.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stop a run: its trainer saves a checkpoint and ends. Can be resumed."""
    from trainmaster.runs import stop as service

    emit(
        ask(lambda workspace: service.stop(workspace, run, after_session=after_session), ends=True),
        as_json,
    )


def resume(
    run: Run,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="latest|best|scratch|STEP",
            help="Where to start, instead of latest or where the patch says.",
        ),
    ] = None,
    sets: Sets = None,
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply", metavar="FINDING[:PATCH]", help="Apply a patch that `diagnose` proposes."
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Continue there, from what is mirrored here."),
    ] = None,
    abandon: Annotated[
        bool,
        typer.Option("--abandon", help="With --host: though it may still live where it was."),
    ] = False,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Start an ended run again. Takes the newest verified checkpoint by default."""
    from trainmaster.machines.renting.instances import advance_instance
    from trainmaster.runs.resume import resume as service

    answer = ask(
        lambda workspace: service.resume(
            workspace,
            run,
            start=start,
            sets=sets or (),
            apply=apply,
            host=host,
            abandon=abandon,
            refresh_instance=advance_instance,
            idempotency_key=idempotency_key,
        )
    )
    emit(answer, as_json)


def checkpoints(
    run: Run,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte again.")] = False,
    as_json: AsJson = False,
) -> None:
    """List checkpoints, their integrity, and the one that a resume would take."""
    from trainmaster.runs.lists.list_checkpoints import list_checkpoints

    emit(ask(lambda workspace: list_checkpoints(workspace, run, verify=verify)), as_json)


def clean(
    run: Run,
    keep: Annotated[
        str, typer.Option("--keep", metavar="WHAT,...", help="Leave these, e.g. best,final.")
    ] = "",
    confirmed: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also checkpoints that were not mirrored here yet.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what an ended run left on its host. The record of it stays here."""
    from trainmaster.runs import clean as service

    kept = split_commas(keep)
    if not confirmed:
        _refuse_unless_somebody_answers(as_json)
        emit(
            ask(
                lambda workspace: service.clean(
                    workspace, run, keep=kept, dry_run=True, force=force
                )
            ),
            False,
        )
        typer.confirm("Remove this for good?", abort=True, err=True)
    emit(ask(lambda workspace: service.clean(workspace, run, keep=kept, force=force)), as_json)


def _refuse_unless_somebody_answers(as_json: bool) -> None:
    if as_json or not sys.stdin.isatty() or not sys.stdout.isatty():
        raise UsageError(
            "BAD_ARGUMENT",
            "clean removes files for good, and there is nobody to ask.",
            "Pass --yes if that is what you want.",
            field="--yes",
        )
