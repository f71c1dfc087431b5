"""The way of a request to the server of its caller's role."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.errors.errors import StateError
from trainmaster.mcp.caller import SCOPE_KEY, Caller
from trainmaster.mcp.http.authentication import (
    Authentication,
    Identity,
    Principal,
    client_address,
)
from trainmaster.mcp.http.names import Names
from trainmaster.mcp.http.quotas import Quotas
from trainmaster.mcp.http.refusal import Refusal, retry_after
from trainmaster.mcp.http.sessions import Sessions
from trainmaster.serving.protocol import admit_connection
from trainmaster.settings.roles import Role

_MOST_KEYS = 10_000
# Without authorization nobody is known, so nobody agrees to a price.
ANYBODY = Identity(Principal(None, "anybody", ""), "anybody", "operate")


class KnownByName:
    """An application for those who name this server, and for no foreign page; whatever they ask."""

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        app = self._app
        try:
            self._names.refuse_others(HTTPConnection(scope))
        except Refusal as refusal:
            app = refusal.response()
        await app(scope, receive, send)


class Gate:
    """An ASGI application: admits a request and passes it on, or answers why not.

    `servers`: by role; one without tools is missing. `authentication`: None without authorization.
    """

    def __init__(
        self,
        servers: Mapping[Role, StreamableHTTPSessionManager],
        limit: RequestLimit,
        authentication: Authentication | None,
    ) -> None:
        self._servers = {
            role: AuthContextMiddleware(_Server(manager)) for role, manager in servers.items()
        }
        self._limit = limit
        self._quotas = Quotas()
        self._sessions = Sessions()
        self._authentication = authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = HTTPConnection(scope)
        try:
            identity = await self._identify(request)
            admit_connection(scope)
            caller = self._admitted(identity, request)
            scope[SCOPE_KEY] = caller
            scope["user"] = sdk_user(identity)
            with self._quotas.request(identity, receive) as counted:
                server = self._servers[caller.role]
                await self._sessions.serve(server, identity, scope, counted, send)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)

    async def _identify(self, request: HTTPConnection) -> Identity:
        return (
            ANYBODY
            if self._authentication is None
            else await self._authentication.identify(request)
        )

    def _admitted(self, identity: Identity, request: HTTPConnection) -> Caller:
        wait_s = self._limit.wait_s(identity.principal, time.monotonic())
        if wait_s > 0:
            error = StateError(
                "CALL_LIMIT",
                f"{identity.name} made too many requests within a minute.",
                f"Wait {spoken_duration(wait_s)}; `server.requests_per_minute` in the settings "
                "is the limit.",
                retryable=True,
            )
            raise Refusal(429, error, retry_after(wait_s))
        if identity.role not in self._servers:
            raise self._without_tools(identity)
        address = client_address(request)
        return Caller(identity.principal, identity.name, identity.role, address)

    def _without_tools(self, identity: Identity) -> Refusal:
        fix = "Ask the server's owner for a token or a scope of a higher role."
        message = f"{identity.name} has no role here, or one for which this server has no tool."
        if self._authentication is None:
            return Refusal(403, StateError("ROLE_TOO_LOW", message, fix))
        return self._authentication.forbidden(message, fix)


class _Server:
    """One role's server, as an ASGI application."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


def sdk_user(identity: Identity) -> AuthenticatedUser:
    """As the SDK has it: it binds sessions and questions to this principal. No token goes along."""
    principal = identity.principal
    return AuthenticatedUser(
        AccessToken(
            token="",
            client_id=principal.claim,
            subject=principal.value,
            scopes=[identity.role] if identity.role else [],
            claims={"iss": principal.issuer} if principal.issuer else None,
        )
    )


class RequestLimit:
    """So many requests a minute for each key, and `at_once` of them at once, else all."""

    def __init__(self, per_minute: int, at_once: int | None = None) -> None:
        self._per_minute = per_minute
        self._most = float(at_once or per_minute)
        self._left: dict[Hashable, tuple[float, float]] = {}

    def wait_s(self, key: Hashable, now_s: float) -> float:
        """0 where the request of `key` counts as made; else how long until the next one may."""
        left, at_s = self._left.pop(key, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._per_minute / 60)
        if len(self._left) >= _MOST_KEYS:  # the one that has made none for longest
            self._left.pop(next(iter(self._left)))
        self._left[key] = (left - 1 if left >= 1 else left, now_s)
        return 0.0 if left >= 1 else (1 - left) * 60 / self._per_minute
