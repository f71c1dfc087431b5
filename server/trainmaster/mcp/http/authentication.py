"""Who sends a request, by the token in its `Authorization` header."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import HTTPConnection

from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import HostError, PolicyError, StateError, StorageError
from trainmaster.home.paths import Home
from trainmaster.mcp.http.refusal import Refusal, retry_after
from trainmaster.settings.roles import Role
from trainmaster.store.access_tokens import PREFIX, KnownTokens

_SCHEME = "bearer "
_LONGEST_TOKEN = 16 * 1024
# RFC 6750, section 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# Until an authorization server, or an owner who repairs a file, may have come back.
_AGAIN_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class Principal:
    """Who somebody is, exactly: two are one only where all of it is equal.

    `issuer`: the authorization server, None for this home; `claim`: what of the token `value` is.
    """

    issuer: str | None
    claim: str
    value: str


@dataclass(frozen=True, slots=True)
class Identity:
    """`name`: as logs and messages name it, and nothing else; `role`: None where the token grants
    none here."""

    principal: Principal
    name: str
    role: Role | None


class Verifier(Protocol):
    """Knows tokens of one kind."""

    def recognizes(self, token: str) -> bool:
        """Whether the token is of this kind. No other verifier is shown it then.

        Raises:
            TrainmasterError: nobody can say now.
        """
        ...

    async def identity(self, token: str, address: str) -> Identity | None:
        """Whose token it is; None where it is not accepted. `address`: the client's.

        Raises:
            TrainmasterError: nobody can say now.
        """
        ...


class HomeTokens:
    """The tokens that `trainmaster mcp-tokens` gave out."""

    def __init__(self, home: Home) -> None:
        self._tokens = KnownTokens(home)

    def recognizes(self, token: str) -> bool:
        """Also what only contains one, as a token that was copied with something before it, or
        without its first characters.

        Raises: StorageError, `TOKENS_NOT_READABLE`."""
        return PREFIX in token or any(
            self._tokens.holds(PREFIX[:lost] + token) for lost in range(1, len(PREFIX) + 1)
        )

    async def identity(self, token: str, _address: str) -> Identity | None:
        """Raises: StorageError, `TOKENS_NOT_READABLE`."""
        record = self._tokens.find(token, time.time())
        if record is None:
            return None
        return Identity(Principal(None, "token", record.sha256), record.name, record.role)


class Authentication:
    """Shows a token to the first verifier that recognizes it, and to no other. `metadata_url`: of
    the protected resource (RFC 9728), where an authorization server is known."""

    def __init__(
        self, verifiers: tuple[Verifier, ...], metadata_url: str | None, scope: str
    ) -> None:
        self._verifiers = verifiers
        self._metadata_url = metadata_url
        self._scope = scope

    async def identify(self, request: HTTPConnection) -> Identity:
        """Raises: Refusal: 401, 403 or 503."""
        token = _token_of(request)
        if token is None:
            raise self._unauthorized("The request has no access token.", None)
        try:
            identity = await self._verified(token, client_address(request))
        except (HostError, StateError, StorageError) as error:
            raise Refusal(503, error, retry_after(_AGAIN_AFTER_S)) from error
        if identity is not None:
            return identity
        raise self._unauthorized(
            "The access token is unknown or expired, or was issued for another server.",
            "invalid_token",
        )

    async def _verified(self, token: str, address: str) -> Identity | None:
        for verifier in self._verifiers:
            if verifier.recognizes(token):
                return await verifier.identity(token, address)
        return None

    def forbidden(self, message: str, fix: str) -> Refusal:
        """403: the token is a good one, and its role too low."""
        error = PolicyError("ROLE_TOO_LOW", message, fix)
        return Refusal(403, error, self._challenge("insufficient_scope"))

    def _unauthorized(self, message: str, problem: str | None) -> Refusal:
        error = PolicyError(
            "TOKEN_REFUSED",
            message,
            "Send `Authorization: Bearer TOKEN`; the server's owner makes one with "
            f"{command('mcp-tokens add', 'NAME')}.",
        )
        return Refusal(401, error, self._challenge(problem))

    def _challenge(self, problem: str | None) -> Mapping[str, str]:
        """RFC 6750, section 3; RFC 9728, section 5.1."""
        parts = {
            "error": problem,
            "scope": self._scope if self._metadata_url else None,
            "resource_metadata": self._metadata_url,
        }
        shown = ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)
        return {"WWW-Authenticate": f"Bearer {shown}".strip()}


def _token_of(request: HTTPConnection) -> str | None:
    header = request.headers.get("authorization", "")
    token = header[len(_SCHEME) :].strip()
    is_one = header[: len(_SCHEME)].lower() == _SCHEME and len(token) <= _LONGEST_TOKEN
    return token if is_one and _TOKEN.fullmatch(token) else None


def client_address(request: HTTPConnection) -> str:
    """The client's address, empty where it is not known."""
    return request.client.host if request.client is not None else ""
