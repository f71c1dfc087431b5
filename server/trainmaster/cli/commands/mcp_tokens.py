"""`mcp-tokens` and its commands."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from trainmaster.cli.acting import acts
from trainmaster.cli.output import emit
from trainmaster.cli.parameters import AsJson

if TYPE_CHECKING:
    from trainmaster.answers.access_tokens import AccessTokenRow
    from trainmaster.answers.base import Answer
    from trainmaster.store.access_tokens import AccessToken

_DAY_S = 86400.0

Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; the log names it.")]

mcp_tokens = typer.Typer(
    help="List the access tokens of `trainmaster mcp --http`: who has one, in which role.",
    rich_markup_mode=None,
    add_completion=False,
)


@mcp_tokens.callback(invoke_without_command=True)
def list_all(context: typer.Context, as_json: AsJson = False) -> None:
    """List the access tokens of `trainmaster mcp --http`: who has one, in which role."""
    if context.invoked_subcommand is not None:
        return
    from trainmaster.answers.access_tokens import AccessTokensAnswer
    from trainmaster.store.access_tokens import read_tokens
    from trainmaster.store.private_home import open_home

    rows = [_row(token, time.time()) for token in read_tokens(open_home(os.environ))]
    _show(AccessTokensAnswer(tokens=rows), as_json)


@mcp_tokens.command()
@acts("mcp-tokens add")
def add(
    name: Name,
    *,
    role: Annotated[
        Literal["read", "operate", "spend"],
        typer.Option(
            "--role",
            metavar="read|operate|spend",
            help="Tools that only read; those that act too; those that cost money too.",
        ),
    ] = "read",
    days: Annotated[
        float | None,
        typer.Option(
            "--days", min=0.01, max=36500, help="How long it counts; until it is removed."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an access token and print it, once: only its digest is kept."""
    from trainmaster.answers.access_tokens import AccessTokenAnswer
    from trainmaster.store.access_tokens import add_token
    from trainmaster.store.private_home import open_home

    now = time.time()
    expires_t = None if days is None else now + days * _DAY_S
    text = add_token(open_home(os.environ), name, role, now=now, expires_t=expires_t)
    _show(AccessTokenAnswer(name=name, role=role, token=text), as_json)


@mcp_tokens.command()
@acts("mcp-tokens remove")
def remove(name: Name, as_json: AsJson = False) -> None:
    """Remove an access token. A running server refuses it from the next request on."""
    from trainmaster.answers.access_tokens import AccessTokenRemovedAnswer
    from trainmaster.store.access_tokens import remove_token
    from trainmaster.store.private_home import open_home

    remove_token(open_home(os.environ), name)
    _show(AccessTokenRemovedAnswer(name=name), as_json)


def _row(token: AccessToken, now: float) -> AccessTokenRow:
    from trainer_runtime.core.protocol.figures import in_utc
    from trainmaster.answers.access_tokens import AccessTokenRow

    expires_t = token.expires_t
    return AccessTokenRow(
        name=token.name,
        role=token.role,
        created_at=in_utc(token.created_t),
        expires_at=None if expires_t is None else in_utc(expires_t),
        expired=True if expires_t is not None and expires_t <= now else None,
    )


def _show(answer: Answer, as_json: bool) -> None:
    from trainmaster.cli.views import mcp_tokens as views  # noqa: F401 (it registers the views)

    emit(answer, as_json)
