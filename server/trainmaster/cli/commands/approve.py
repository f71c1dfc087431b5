"""`approve`: a person's word on what an agent was quoted."""

from __future__ import annotations

from typing import Annotated

import typer

from trainer_runtime.core.protocol.command import command
from trainmaster.cli.commands.rent import show
from trainmaster.cli.confirm import Yes, declined, somebody_answers
from trainmaster.cli.output import printable
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask
from trainmaster.errors.errors import SpendError


def approve(
    approval: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The quote's id; lists them without.")
    ] = None,
    confirmed: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Approve what an agent may not do by itself. Good once, for that request, for an hour."""
    from trainmaster.machines import approvals as service

    if approval is None:
        show(ask(service.list_waiting), as_json)
        return
    quoted = ask(lambda workspace: service.find_quote(workspace, approval))
    if not confirmed and not quoted.approved:
        if not somebody_answers(as_json):
            raise SpendError(
                "CONFIRMATION_REQUIRED",
                f"{quoted.text} Only a person approves that, and there is nobody to ask.",
                f"Let the user run {command('approve', quoted.id)} in a terminal.",
            )
        if not typer.confirm(f"{printable(quoted.text)} Approve?", err=True):
            raise declined()
    show(ask(lambda workspace: service.approve(workspace, approval)), as_json)
