"""Who a call over HTTP comes from. Over stdio it is the home's user, who is not named."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from mcp.server.mcpserver import Context

from trainmaster.settings.roles import Role

# Where a request's ASGI scope holds it.
SCOPE_KEY = "trainmaster.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """`user`: who it is, exactly; `name`: as logs name them; `address`: the client's."""

    user: Hashable
    name: str
    role: Role
    address: str


def caller_of(context: Context[Any, Any] | None) -> Caller | None:
    """The caller of a request over HTTP; None over stdio and within a process."""
    request = None if context is None else context.request_context.request
    caller = None if request is None else request.scope.get(SCOPE_KEY)
    return caller if isinstance(caller, Caller) else None
