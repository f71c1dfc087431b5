"""`provision`, `release` and `costs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.confirm import Yes, asking
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson
from trainmaster.cli.run_service import ask

if TYPE_CHECKING:
    from trainmaster.words.answers.base import Answer

# Of a box that boots; what takes longer goes on by itself.
_LONGEST_BOOT_S = 900.0
_LONGEST_RELEASE_S = 300.0


def provision(
    offer: Annotated[
        str, typer.Argument(metavar="OFFER", help="As `offers` names it: PROVIDER:ID.")
    ],
    *,
    hours: Annotated[
        float, typer.Option("--hours", help="How long the box may be used; it is ended then.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="What the host is called; made up without.")
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="A container image; the provider's without.")
    ] = None,
    disk_gib: Annotated[
        float | None, typer.Option("--disk-gib", min=1, help="Room on its disk; 50 without.")
    ] = None,
    region: Annotated[
        str | None, typer.Option("--region", help="A provider's region; any without.")
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option("--spec", metavar="SPEC", help="What is to train there: its disk must do."),
    ] = None,
    root: Annotated[
        str | None, typer.Option("--root", help="Folder for runs there, instead of the usual one.")
    ] = None,
    confirmed: Yes = False,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", help="The same key again finds the first call's box."),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Come back at once; the box boots by itself.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rent a box. Shows the price and asks; it becomes a host like any other."""
    from trainmaster.machines.renting.provision import provision as service

    answer = ask(
        lambda workspace: service(
            workspace,
            offer,
            hours=hours,
            confirm=asking(confirmed, as_json),
            name=name,
            image=image,
            disk_gib=disk_gib,
            region=region,
            root=root,
            spec=spec,
            idempotency_key=idempotency_key,
            wait_s=0.0 if no_wait else _LONGEST_BOOT_S,
        )
    )
    show(answer, as_json)


def release(
    box: Annotated[
        str, typer.Argument(metavar="BOX", help="The host's name, or a tag that `costs` shows.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Stop its runs, and give up what can't be brought.")
    ] = False,
    confirmed: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give a rented box back for good. Brings records and mirrored checkpoints here first."""
    from trainmaster.machines.renting.release import release as service

    answer = ask(
        lambda workspace: service(
            workspace,
            box,
            confirm=asking(confirmed, as_json),
            force=force,
            wait_s=_LONGEST_RELEASE_S,
        )
    )
    show(answer, as_json)


def costs(
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Ask the providers first; tells of boxes without a record."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what renting has cost, by box and by run, and what open leases may still come to."""
    from trainmaster.machines.renting.costs import list_costs

    show(ask(lambda workspace: list_costs(workspace, ask=refresh)), as_json)


def show(answer: Answer, as_json: bool) -> None:
    """Print an answer of these commands, or of `approve`."""
    from trainmaster.cli.views import rentals  # noqa: F401 (it registers the views)

    emit(answer, as_json)
