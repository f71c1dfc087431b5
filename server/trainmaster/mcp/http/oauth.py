"""Tokens of an authorization server: an OAuth 2.1 resource server's checks.

A token is a JWT, checked by the keys that the authorization server publishes (RFC 7517, 9068), or
the authorization server is asked about it (RFC 7662). Either way its issuer must be the one of the
settings, and its audience this server (RFC 8707): tokens for other servers count for nothing here.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import jwt
from jwt.types import Options

from trainer_runtime.core.protocol.text import cleaned
from trainmaster.mcp.http.authentication import Identity, Verifier
from trainmaster.store.secret_values import find_value
from trainmaster.words.errors import HostError
from trainmaster.words.paths import Home
from trainmaster.words.roles import ROLES, Role
from trainmaster.words.server_settings import OAuthSettings

_TIMEOUT_S = 10.0
_LARGEST_REPLY_BYTES = 1 << 20
_LONGEST_NAME = 100
# Signatures of a private key: with a shared secret each server that checks tokens could make them.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
_CHECKS: Options = {"require": ["exp", "iss", "aud"]}
# Clocks differ.
_LEEWAY_S = 30.0
# Keys are fetched again after this, and for a key that is unknown, but no more often than that.
_KEYS_FOR_S = 3600.0
_KEYS_AGAIN_AFTER_S = 60.0
# An answer of the introspection counts for so long: a revoked token ends by then.
_ANSWER_COUNTS_S = 30.0
_MOST_ANSWERS = 10_000
_WELL_KNOWN = ("oauth-authorization-server", "openid-configuration")


def scope_names(settings: OAuthSettings) -> list[str]:
    """The scopes that grant a role, the least first."""
    scopes = roles_of_scopes(settings)
    return sorted(scopes, key=lambda scope: ROLES.index(scopes[scope]))


def roles_of_scopes(settings: OAuthSettings) -> Mapping[str, Role]:
    """The role that each scope grants."""
    if settings.scopes is not None:
        return settings.scopes
    return {f"trainmaster:{role}": role for role in ROLES}


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
        asking = _Asking(client, settings.issuer)
        if settings.introspection_url is None:
            yield SignedTokens(settings, audience, asking)
            return
        secret = find_value(
            home, str(settings.client_secret), environment, "server.oauth.client_secret"
        )
        yield OpaqueTokens(settings, audience, asking, secret)


class _Asking:
    """Requests to the authorization server."""

    def __init__(self, client: httpx.AsyncClient, issuer: str) -> None:
        self._client = client
        self.issuer = issuer

    async def document(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        """The JSON object at `url`. Raises: HostError, `AUTHORIZATION_UNREACHABLE`."""
        try:
            async with self._client.stream(method, url, **options) as response:
                response.raise_for_status()
                data = b""
                async for part in response.aiter_bytes():
                    data += part
                    if len(data) > _LARGEST_REPLY_BYTES:
                        raise ValueError("it is too large")
            found = httpx.Response(200, content=data).json()
            if not isinstance(found, dict):
                raise ValueError("it is not an object")
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise self.unusable(url, type(error).__name__) from error
        return found

    def unusable(self, url: str, reason: str) -> HostError:
        """What a reply means that says nothing."""
        return HostError(
            "AUTHORIZATION_UNREACHABLE",
            f"The authorization server does not answer at {url} as it should: {reason}.",
            "Try again soon; the server's owner checks `server.oauth` in the settings.",
            retryable=True,
        )


class SignedTokens:
    """JWTs, checked by the published keys, which are kept for a while."""

    def __init__(self, settings: OAuthSettings, audience: str, asking: _Asking) -> None:
        self._settings = settings
        self._audience = audience
        self._asking = asking
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_s: float | None = None

    async def identity(self, token: str) -> Identity | None:
        """Raises: HostError, `AUTHORIZATION_UNREACHABLE`."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            return None
        key = await self._key(key_id)
        if key is None:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                audience=self._audience,
                issuer=self._settings.issuer,
                leeway=_LEEWAY_S,
                options=_CHECKS,
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        return _identity(claims, self._settings)

    async def _key(self, key_id: str | None) -> jwt.PyJWK | None:
        now_s = time.monotonic()
        age_s = None if self._fetched_s is None else now_s - self._fetched_s
        is_due = age_s is None or age_s > _KEYS_FOR_S
        if is_due or (key_id not in self._keys and (age_s or 0.0) > _KEYS_AGAIN_AFTER_S):
            self._keys = await self._fetch()
            self._fetched_s = now_s
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _fetch(self) -> dict[str | None, jwt.PyJWK]:
        url = self._settings.jwks_url or await self._discovered()
        document = await self._asking.document("GET", url)
        try:
            return {key.key_id: key for key in jwt.PyJWKSet.from_dict(document).keys}
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
            raise self._asking.unusable(url, type(error).__name__) from error

    async def _discovered(self) -> str:
        """The address of the keys, of the issuer's metadata (RFC 8414, or OpenID Connect's)."""
        issuer = httpx.URL(self._settings.issuer)
        path = issuer.path.rstrip("/")
        failed: HostError | None = None
        for name in _WELL_KNOWN:
            before = f"/.well-known/{name}{path}"
            well_known = before if name == _WELL_KNOWN[0] else f"{path}/.well-known/{name}"
            try:
                found = await self._asking.document("GET", str(issuer.copy_with(path=well_known)))
            except HostError as error:
                failed = error
                continue
            url = found.get("jwks_uri")
            if found.get("issuer") == self._settings.issuer and isinstance(url, str):
                return url
        raise failed or self._asking.unusable(str(issuer), "its metadata names no keys")


class OpaqueTokens:
    """Tokens that only the authorization server understands; its answers are kept for a moment."""

    def __init__(
        self, settings: OAuthSettings, audience: str, asking: _Asking, secret: str
    ) -> None:
        self._settings = settings
        self._audience = audience
        self._asking = asking
        self._credentials = (str(settings.client_id), secret)
        self._known: dict[str, tuple[float, Identity | None]] = {}

    async def identity(self, token: str) -> Identity | None:
        """Raises: HostError, `AUTHORIZATION_UNREACHABLE`."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        until_s, found = self._known.get(digest, (0.0, None))
        if time.monotonic() >= until_s:
            claims = await self._asking.document(
                "POST",
                str(self._settings.introspection_url),
                data={"token": token, "token_type_hint": "access_token"},
                auth=self._credentials,
            )
            found = self._accepted(claims)
            if len(self._known) >= _MOST_ANSWERS:
                self._known.pop(next(iter(self._known)))
            self._known[digest] = (time.monotonic() + _ANSWER_COUNTS_S, found)
        return found

    def _accepted(self, claims: Mapping[str, Any]) -> Identity | None:
        audience, expires = claims.get("aud"), claims.get("exp")
        audiences = audience if isinstance(audience, list) else [audience]
        is_ours = self._audience in audiences and claims.get("active") is True
        # Optional in RFC 7662: who answered is the issuer of the settings.
        is_issuers = claims.get("iss", self._settings.issuer) == self._settings.issuer
        is_over = isinstance(expires, int | float) and expires + _LEEWAY_S < time.time()
        return _identity(claims, self._settings) if is_ours and is_issuers and not is_over else None


def _identity(claims: Mapping[str, Any], settings: OAuthSettings) -> Identity:
    """Who it is, by a name that no token of the home can have, and the highest role of a scope."""
    given = claims.get("scope", claims.get("scp"))
    listed = given.split() if isinstance(given, str) else given
    names = set(map(str, listed)) if isinstance(listed, list) else set[str]()
    granted = [role for scope, role in roles_of_scopes(settings).items() if scope in names]
    who = claims.get("sub") or claims.get("client_id") or claims.get("azp") or "unnamed"
    return Identity(
        cleaned(f"oauth:{who}", _LONGEST_NAME),
        max(granted, key=ROLES.index, default=None),
        issuer=settings.issuer,
    )
