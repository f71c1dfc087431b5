"""What people see of `trainmaster mcp-tokens`."""

from __future__ import annotations

from trainer_runtime.core.protocol.command import command
from trainmaster.answers.access_tokens import (
    AccessTokenAnswer,
    AccessTokenRemovedAnswer,
    AccessTokensAnswer,
)
from trainmaster.cli.views.blocks import Block, Grid, view


@view.register
def _(answer: AccessTokensAnswer) -> list[Block]:
    if not answer.tokens:
        return [f"No access tokens. {command('mcp-tokens add', 'NAME')} makes one."]
    rows = [
        (
            row.name,
            row.role,
            row.created_at,
            f"{row.expires_at or 'never'}{' (expired)' if row.expired else ''}",
        )
        for row in answer.tokens
    ]
    return [Grid(("name", "role", "added (UTC)", "expires (UTC)"), rows)]


@view.register
def _(answer: AccessTokenAnswer) -> list[Block]:
    return [
        answer.token,
        f"The access token of {answer.name}, role {answer.role}. It is not shown again.",
    ]


@view.register
def _(answer: AccessTokenRemovedAnswer) -> list[Block]:
    return [f"Removed the access token of {answer.name}."]
