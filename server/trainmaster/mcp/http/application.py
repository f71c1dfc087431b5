"""What is served: an endpoint with a server for each role, over one open workspace.

A token is a JWT, checked by the keys that the authorization server publishes (RFC 7517, 9068), or
the authorization server is asked about it (RFC 7662). Either way its issuer must be the one of the
settings, and its audience this server (RFC 8707): tokens for other servers count for nothing here.

It is asked once about a token for all who show it meanwhile, and its answer counts for a moment,
also that a token is none. Who shows tokens that are none can't have it asked without end: unknown
tokens have an allowance by address and in all. Tokens that counted a moment ago have none.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
from mcp.server import MCPServer
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

from trainmaster.calls.shares import Shares
from trainmaster.errors.errors import StateError
from trainmaster.home.paths import Home
from trainmaster.mcp.definition import Definition, OpenWorkspace
from trainmaster.mcp.http.authentication import Authentication, HomeTokens, Identity, Verifier
from trainmaster.mcp.http.authorization_server import AuthorizationServer
from trainmaster.mcp.http.claims import identity_of, scope_names
from trainmaster.mcp.http.gate import Gate, KnownByName, RequestLimit
from trainmaster.mcp.http.names import Names
from trainmaster.mcp.http.quotas import MOST_OF_A_BODY
from trainmaster.mcp.http.sessions import MOST_IN_ALL
from trainmaster.mcp.http.signed_tokens import LEEWAY_S, SignedTokens
from trainmaster.mcp.server import server_of
from trainmaster.mcp.toolsets import role_for
from trainmaster.settings.roles import ROLES, Role, includes
from trainmaster.settings.server_settings import OAuthSettings, ServerSettings
from trainmaster.store.secret_values import find_value

# An answer counts for so long: a revoked token ends by then.
_ANSWER_COUNTS_S = 30.0
# A token that counted needs no allowance for so long, however often it is asked about.
_KNOWN_FOR_S = 3600.0
_MOST_ANSWERS = 10_000
# Questions about unknown tokens: a minute, and at once.
_OF_AN_ADDRESS = (30, 10)
_IN_ALL = (300, 60)
_MOST_UNDER_WAY = 16
_TIMEOUT_S = 10.0
PATH = "/mcp"
# Those that begin at the same moment are counted before they are ended for each other.
_MOST_SESSIONS = 2 * MOST_IN_ALL
# Headers of the protocol that a browser's page sends, and those that it may read.
_SENT_HEADERS = (
    *("authorization", "content-type", "mcp-protocol-version", "mcp-session-id"),
    *("mcp-method", "mcp-name", "last-event-id"),
)
_READ_HEADERS = ("mcp-session-id", "www-authenticate", "retry-after")


@dataclass(frozen=True, slots=True)
class Served:
    """`url`: the endpoint's public one; `names`: under which it may be asked; `authorized`: whether
    requests need a token."""

    url: str
    names: Names
    settings: ServerSettings
    authorized: bool = True


@asynccontextmanager
async def application(
    environment: Mapping[str, str],
    home: Home,
    definitions: Sequence[Definition],
    served: Served,
) -> AsyncIterator[ASGIApp]:
    """The ASGI application that offers these tools to each caller as far as the role reaches.

    Raises:
        TrainmasterError: the home can't be used.
    """
    read_only = all(definition.only_reads for definition in definitions)
    with ExitStack() as closing:
        opened = OpenWorkspace(environment, closing, read_only=read_only)
        opened.get()
        try:
            async with AsyncExitStack() as running:
                managers = _managers(definitions, environment, opened)
                for manager in managers.values():
                    await running.enter_async_context(manager.run())
                authentication = await _authentication(running, environment, home, served)
                limit = RequestLimit(served.settings.requests_per_minute)
                gate = Gate(managers, limit, authentication)
                yield KnownByName(_routed(gate, served), served.names)
        finally:
            await opened.disconnect()


def _managers(
    definitions: Sequence[Definition], environment: Mapping[str, str], opened: OpenWorkspace
) -> dict[Role, StreamableHTTPSessionManager]:
    """By role; without those for which no tool is left."""

    @asynccontextmanager
    async def lifespan(_: MCPServer[OpenWorkspace]) -> AsyncIterator[OpenWorkspace]:
        yield opened

    managers, shares = {}, Shares()
    for role in ROLES:
        offered = [definition for definition in definitions if includes(role, role_for(definition))]
        if not offered:
            continue
        server = server_of(offered, environment, lifespan, is_remote=True, shares=shares)
        server.beyond = {
            definition.name: role_for(definition)
            for definition in definitions
            if not includes(role, role_for(definition))
        }
        # Hosts and origins were checked before; that must not depend on the role.
        unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server.streamable_http_app(
            transport_security=unchecked,
            max_sessions=_MOST_SESSIONS,
            max_request_body_size=MOST_OF_A_BODY,
        )
        managers[role] = server.session_manager
    return managers


async def _authentication(
    running: AsyncExitStack, environment: Mapping[str, str], home: Home, served: Served
) -> Authentication | None:
    if not served.authorized:
        return None
    oauth = served.settings.oauth
    verifiers: tuple[Verifier, ...] = (HomeTokens(home),)
    if oauth is None:
        return Authentication(verifiers, None, "")
    verifier = await running.enter_async_context(verifier_of(oauth, served.url, home, environment))
    resource = _auth_settings(oauth, served.url).resource_server_url
    assert resource is not None
    metadata_url = str(build_resource_metadata_url(resource))
    return Authentication((*verifiers, verifier), metadata_url, scope_names(oauth)[0])


def _auth_settings(oauth: OAuthSettings, url: str) -> AuthSettings:
    """As the SDK has them: its type keeps both URLs as they are written, which clients compare.
    The verifiers check audiences."""
    urls = {"issuer_url": oauth.issuer, "resource_server_url": url}
    return AuthSettings.model_validate({**urls, "validate_token_resource": False})


def _routed(gate: Gate, served: Served) -> Starlette:
    settings = served.settings
    routes = [Route(path, endpoint=gate) for path in sorted({PATH, urlsplit(served.url).path})]
    if served.authorized and settings.oauth is not None:
        auth = _auth_settings(settings.oauth, served.url)
        assert auth.resource_server_url is not None
        routes += create_protected_resource_routes(
            resource_url=auth.resource_server_url,
            authorization_servers=[auth.issuer_url],
            scopes_supported=scope_names(settings.oauth),
            resource_name="Trainmaster",
        )
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=_SENT_HEADERS,
        expose_headers=_READ_HEADERS,
    )
    app = Starlette(routes=routes, middleware=[cors] if settings.origins else [])
    app.router.redirect_slashes = False  # a path has one spelling
    return app


@asynccontextmanager
async def verifier_of(
    settings: OAuthSettings, url: str, home: Home, environment: Mapping[str, str]
) -> AsyncIterator[Verifier]:
    """What knows the tokens of this authorization server for the server at `url`.

    Raises:
        StateError: `SECRET_MISSING`, `SECRET_INVALID`, the client's secret.
    """
    audience = settings.audience or url
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
        authorization = AuthorizationServer(client, settings.issuer)
        if settings.introspection_url is None:
            yield SignedTokens(settings, audience, authorization)
            return
        secret = find_value(
            home, str(settings.client_secret), environment, "server.oauth.client_secret"
        )
        yield OpaqueTokens(settings, audience, authorization, secret)


@dataclass(frozen=True, slots=True)
class _Reply:
    """`until_s`: it counts until then, by the monotonic clock."""

    until_s: float
    identity: Identity | None


class OpaqueTokens:
    """A `Verifier`."""

    def __init__(
        self,
        settings: OAuthSettings,
        audience: str,
        authorization: AuthorizationServer,
        secret: str,
    ) -> None:
        self._settings = settings
        self._audience = audience
        self._authorization = authorization
        self._credentials = (str(settings.client_id), secret)
        self._accepted: dict[str, _Reply] = {}
        self._refused: dict[str, _Reply] = {}
        self._under_way: dict[str, asyncio.Task[Identity | None]] = {}
        self._of_addresses = RequestLimit(*_OF_AN_ADDRESS)
        self._in_all = RequestLimit(*_IN_ALL)

    def recognizes(self, token: str) -> bool:
        """Any other than those of the home, none of which is sent anywhere."""
        return True

    async def identity(self, token: str, address: str) -> Identity | None:
        """Raises:
        HostError: `AUTHORIZATION_UNREACHABLE`.
        StateError: `SERVER_BUSY`.
        """
        digest = hashlib.sha256(token.encode()).hexdigest()
        reply = self._accepted.get(digest) or self._refused.get(digest)
        now_s = time.monotonic()
        if reply is not None and now_s < reply.until_s:
            return reply.identity
        if digest not in self._under_way:
            if (
                digest not in self._accepted
                or now_s > self._accepted[digest].until_s + _KNOWN_FOR_S
            ):
                self._refuse_too_many(address, now_s)
            asking = asyncio.create_task(self._ask(token, digest))
            asking.add_done_callback(partial(self._answered, digest))
            self._under_way[digest] = asking
        # One who leaves ends no question that others wait for.
        return await asyncio.shield(self._under_way[digest])

    def _answered(self, digest: str, asking: asyncio.Task[Identity | None]) -> None:
        self._under_way.pop(digest, None)
        if not asking.cancelled():
            asking.exception()  # seen: all who waited may have left

    def _refuse_too_many(self, address: str, now_s: float) -> None:
        is_beyond = (
            len(self._under_way) >= _MOST_UNDER_WAY
            or self._of_addresses.wait_s(address, now_s) > 0
            or self._in_all.wait_s("", now_s) > 0
        )
        if is_beyond:
            raise StateError(
                "SERVER_BUSY",
                "Too many unknown access tokens were shown; this one was not checked.",
                "Try again soon, with a token that counts.",
                retryable=True,
            )

    async def _ask(self, token: str, digest: str) -> Identity | None:
        claims = await self._authorization.document(
            "POST",
            str(self._settings.introspection_url),
            data={"token": token, "token_type_hint": "access_token"},
            auth=self._credentials,
        )
        identity = self._identity(claims)
        self._accepted.pop(digest, None)
        self._refused.pop(digest, None)
        replies = self._refused if identity is None else self._accepted
        if len(replies) >= _MOST_ANSWERS:
            replies.pop(next(iter(replies)))
        replies[digest] = _Reply(time.monotonic() + _ANSWER_COUNTS_S, identity)
        return identity

    def _identity(self, claims: Mapping[str, Any]) -> Identity | None:
        audience, expires = claims.get("aud"), claims.get("exp")
        audiences = audience if isinstance(audience, list) else [audience]
        is_ours = self._audience in audiences and claims.get("active") is True
        # Optional in RFC 7662: who answered is the issuer of the settings.
        is_issuers = claims.get("iss", self._settings.issuer) == self._settings.issuer
        is_over = isinstance(expires, int | float) and expires + LEEWAY_S < time.time()
        is_accepted = is_ours and is_issuers and not is_over
        return identity_of(claims, self._settings) if is_accepted else None
