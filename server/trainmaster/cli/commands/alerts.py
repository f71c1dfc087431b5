"""`alerts` and its commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainmaster.cli.acting import acts
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.answers.alerts import AlertAddedAnswer
    from trainmaster.answers.base import Answer
    from trainmaster.home.paths import Home
    from trainmaster.sync.workspace import Workspace

OneRun = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A run's id or name; every run without.")
]

alerts = typer.Typer(
    help="List alerts: messages sent when a run fails, falls silent or meets a condition.",
    rich_markup_mode=None,
    add_completion=False,
)


@alerts.callback(invoke_without_command=True)
def list_all(context: typer.Context, as_json: AsJson = False) -> None:
    """List alerts: messages sent when a run fails, falls silent or meets a condition."""
    if context.invoked_subcommand is not None:
        return
    from trainmaster.runs.lists.list_alerts import list_alerts as service

    _show(ask(service), as_json)


@alerts.command()
@acts("alerts add")
def add(
    run: OneRun = None,
    *,
    when: Annotated[
        str,
        typer.Option(
            "--when",
            metavar="CONDITION",
            help='Such as "val_loss > 3.5 for 3", "finding critical", "state failed", '
            '"silence 10m".',
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DESTINATION",
            help="As named in the settings; at a terminal also a new one: desktop, "
            "'command:PROGRAM ARGUMENTS' or https://ADDRESS.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What messages call it; made of the condition.")
    ] = None,
    severity: Annotated[
        Literal["info", "warning", "critical"],
        typer.Option("--severity", metavar="info|warning|critical", help="How loud."),
    ] = "warning",
    as_json: AsJson = False,
) -> None:
    """Add an alert to a run, or to every run. It applies from now on."""
    from trainmaster.runs import alerts as service

    async def added(workspace: Workspace) -> AlertAddedAnswer:
        named = None if to is None else await _settled(workspace.home, to, as_json)
        return await service.add_alert(
            workspace, when=when, to=named, name=name, severity=severity, run=run
        )

    _show(ask(added), as_json)


async def _settled(home: Home, to: str, as_json: bool) -> str:
    """The destination's name in the settings; a new one is written there if its owner agrees.

    Raises:
        UsageError: `DESTINATION_UNKNOWN`, nobody is there to agree.
        SpendError: `CONFIRMATION_DECLINED`.
        StateError: the settings can't take it.
    """
    from trainmaster.alerts.new_destination import add_destination, new_destination
    from trainmaster.cli.confirm import agrees, declined, somebody_answers
    from trainmaster.errors.errors import UsageError

    new = new_destination(to)
    if new is None:
        return to
    if not somebody_answers(as_json):
        raise UsageError(
            "DESTINATION_UNKNOWN",
            "A new destination is taken only from a person at a terminal.",
            f"Run this there without --json, or add to {home.settings}, below `destinations:`, "
            f"{new.line}",
            field="to",
        )
    if not await agrees(f"This adds to the destinations in {home.settings}: {new.line}"):
        raise declined()
    add_destination(home, new)
    return new.name


@alerts.command("list")
def list_alerts(run: OneRun = None, as_json: AsJson = False) -> None:
    """List alerts; with a run, those that are for it and what became of its newest messages."""
    from trainmaster.runs.lists.list_alerts import list_alerts as service

    _show(ask(lambda workspace: service(workspace, run)), as_json)


@alerts.command()
@acts("alerts remove")
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the alert is called.")],
    run: OneRun = None,
    as_json: AsJson = False,
) -> None:
    """Remove an alert of every run, or of the run named behind it."""
    from trainmaster.runs import alerts as service

    _show(ask(lambda workspace: service.remove_alert(workspace, name, run)), as_json)


@alerts.command()
@acts("alerts test")
def test(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A destination, or an alert that goes to it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Send a test message and say what came back; exit code 1 where it was not taken."""
    from trainmaster.runs import alerts as service

    answer = ask(lambda workspace: service.test_destination(workspace, name))
    _show(answer, as_json)
    raise typer.Exit(0 if answer.sent else 1)


def send_alerts(
    lock_descriptor: Annotated[
        int | None, typer.Option("--lock-descriptor", help="The lock, where it is held.")
    ] = None,
) -> None:
    """Send the alerts that are due. Started by itself where any are."""
    from trainmaster.alerts.send import send_due

    ask(lambda workspace: send_due(workspace, lock_descriptor=lock_descriptor))


def _show(answer: Answer, as_json: bool) -> None:

    emit(answer, as_json)
