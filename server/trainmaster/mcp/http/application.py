"""What is served: an endpoint with a server for each role, over one open workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

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
from trainmaster.home.paths import Home
from trainmaster.mcp.definition import Definition, OpenWorkspace
from trainmaster.mcp.http.authentication import Authentication, HomeTokens, Verifier
from trainmaster.mcp.http.claims import scope_names
from trainmaster.mcp.http.gate import Gate, KnownByName
from trainmaster.mcp.http.limits import RequestLimit
from trainmaster.mcp.http.names import Names
from trainmaster.mcp.http.oauth import verifier_of
from trainmaster.mcp.http.quotas import MOST_OF_A_BODY
from trainmaster.mcp.http.sessions import MOST_IN_ALL
from trainmaster.mcp.server import server_of
from trainmaster.mcp.toolsets import role_for
from trainmaster.settings.roles import ROLES, Role, includes
from trainmaster.settings.server_settings import OAuthSettings, ServerSettings

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
