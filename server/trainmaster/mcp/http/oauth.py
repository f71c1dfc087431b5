"""Tokens of an authorization server: an OAuth 2.1 resource server's checks.

A token is a JWT, checked by the keys that the authorization server publishes (RFC 7517, 9068), or
the authorization server is asked about it (RFC 7662). Either way its issuer must be the one of the
settings, and its audience this server (RFC 8707): tokens for other servers count for nothing here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx

from trainmaster.home.paths import Home
from trainmaster.mcp.http.authentication import Verifier
from trainmaster.mcp.http.authorization_server import AuthorizationServer
from trainmaster.mcp.http.opaque_tokens import OpaqueTokens
from trainmaster.mcp.http.signed_tokens import SignedTokens
from trainmaster.settings.server_settings import OAuthSettings
from trainmaster.store.secret_values import find_value

_TIMEOUT_S = 10.0


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
