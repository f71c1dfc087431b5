"""JWTs, checked by the keys that the authorization server publishes (RFC 7517, 9068)."""

from __future__ import annotations

import asyncio
import time

import httpx
import jwt
from jwt.types import Options

from trainmaster.errors.errors import HostError
from trainmaster.mcp.http.authentication import Identity
from trainmaster.mcp.http.authorization_server import AuthorizationServer
from trainmaster.mcp.http.claims import identity_of
from trainmaster.settings.server_settings import OAuthSettings

# Signatures of a private key: with a shared secret each server that checks tokens could make them.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
_CHECKS: Options = {"require": ["exp", "iss", "aud"]}
# Clocks differ.
LEEWAY_S = 30.0
# Keys are fetched again after this, for a key that is unknown no more often than that, and after a
# failure no sooner than in a moment: requests that come meanwhile get the same failure.
_KEYS_FOR_S = 3600.0
_KEYS_AGAIN_AFTER_S = 60.0
_FAILED_FOR_S = 2.0
_WELL_KNOWN = ("oauth-authorization-server", "openid-configuration")


class SignedTokens:
    """A `Verifier`. The keys are kept for a while, and fetched once for all who wait for them."""

    def __init__(
        self, settings: OAuthSettings, audience: str, authorization: AuthorizationServer
    ) -> None:
        self._settings = settings
        self._audience = audience
        self._authorization = authorization
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_s: float | None = None
        self._failed: tuple[float, HostError] | None = None
        self._fetching = asyncio.Lock()

    def recognizes(self, token: str) -> bool:
        """Any other than those of the home, none of which is sent anywhere."""
        return True

    async def identity(self, token: str, _address: str) -> Identity | None:
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
                leeway=LEEWAY_S,
                options=_CHECKS,
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        return identity_of(claims, self._settings)

    async def _key(self, key_id: str | None) -> jwt.PyJWK | None:
        if self._is_due(key_id):
            async with self._fetching:
                if self._is_due(key_id):  # who waited before may have fetched them
                    await self._renew()
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _is_due(self, key_id: str | None) -> bool:
        if self._fetched_s is None:
            return True
        age_s = time.monotonic() - self._fetched_s
        return age_s > (_KEYS_FOR_S if key_id in self._keys else _KEYS_AGAIN_AFTER_S)

    async def _renew(self) -> None:
        if self._failed is not None and time.monotonic() < self._failed[0]:
            raise self._failed[1]
        try:
            self._keys = await self._fetch()
        except HostError as error:
            self._failed = time.monotonic() + _FAILED_FOR_S, error
            raise
        self._fetched_s = time.monotonic()

    async def _fetch(self) -> dict[str | None, jwt.PyJWK]:
        url = self._settings.jwks_url or await self._discovered()
        document = await self._authorization.document("GET", url)
        try:
            return {key.key_id: key for key in jwt.PyJWKSet.from_dict(document).keys}
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
            raise self._authorization.unusable(url, type(error).__name__) from error

    async def _discovered(self) -> str:
        """The address of the keys, of the issuer's metadata (RFC 8414, or OpenID Connect's)."""
        issuer = httpx.URL(self._settings.issuer)
        path = issuer.path.rstrip("/")
        failed: HostError | None = None
        for name in _WELL_KNOWN:
            before = f"/.well-known/{name}{path}"
            well_known = before if name == _WELL_KNOWN[0] else f"{path}/.well-known/{name}"
            address = str(issuer.copy_with(path=well_known))
            try:
                metadata = await self._authorization.document("GET", address)
            except HostError as error:
                failed = error
                continue
            url = metadata.get("jwks_uri")
            if metadata.get("issuer") == self._settings.issuer and isinstance(url, str):
                return url
        raise failed or self._authorization.unusable(str(issuer), "its metadata names no keys")
