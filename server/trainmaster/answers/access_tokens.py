"""The answers of `trainmaster mcp-tokens`."""

from trainmaster.answers.base import Answer, WholeAnswer
from trainmaster.answers.fields import field
from trainmaster.settings.roles import Role


class AccessTokenRow(Answer):
    """Times are UTC. `expired`: it counts no more."""

    name: str
    role: Role
    created_at: str
    expires_at: str | None = None
    expired: bool | None = None


class AccessTokensAnswer(WholeAnswer):
    """In the order in which they were added."""

    tokens: list[AccessTokenRow]


class AccessTokenAnswer(WholeAnswer):
    """A new token. `token` is shown here only."""

    name: str
    role: Role
    token: str = field(description="what a client sends")


class AccessTokenRemovedAnswer(WholeAnswer):
    name: str
