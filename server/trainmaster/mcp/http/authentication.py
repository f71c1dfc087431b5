"""Who sends a request, by the token in its `Authorization` header."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import HTTPConnection

from trainer_runtime.core.records import dataclass
from trainmaster.mcp.http.refusal import Refusal, retry_after
from trainmaster.store.access_tokens import KnownTokens
from trainmaster.words.errors import HostError, PolicyError, StorageError
from trainmaster.words.paths import Home
from trainmaster.words.roles import Role

_SCHEME = "bearer "
_LONGEST_TOKEN = 16 * 1024
# Until an authorization server, or an owner who repairs a file, may have come back.
_AGAIN_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class Identity:
    """`name`: as the log names it; `role`: None where the token grants none here; `issuer`: of the
    authorization server, None for a token of the home."""

    name: str
    role: Role | None
    issuer: str | None = None


class Verifier(Protocol):
    """Knows tokens of one kind."""

    async def identity(self, token: str) -> Identity | None:
        """Whose token it is; None where it is not accepted.

        Raises:
            TrainmasterError: nobody can say now.
        """
        ...


class HomeTokens:
    """The tokens that `trainmaster mcp-tokens` gave out."""

    def __init__(self, home: Home) -> None:
        self._tokens = KnownTokens(home)

    async def identity(self, token: str) -> Identity | None:
        """Raises: StorageError, `TOKENS_NOT_READABLE`."""
        found = self._tokens.find(token, time.time())
        return None if found is None else Identity(found.name, found.role)


class Authentication:
    """Asks each verifier in turn. `metadata_url`: of the protected resource (RFC 9728), where an
    authorization server is known."""

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
            for verifier in self._verifiers:
                found = await verifier.identity(token)
                if found is not None:
                    return found
        except (HostError, StorageError) as error:
            raise Refusal(503, error, retry_after(_AGAIN_AFTER_S)) from error
        raise self._unauthorized(
            "The access token is unknown or expired, or was issued for another server.",
            "invalid_token",
        )

    def forbidden(self, message: str, fix: str) -> Refusal:
        """403: the token is a good one, and its role too low."""
        error = PolicyError("ROLE_TOO_LOW", message, fix)
        return Refusal(403, error, self._challenge("insufficient_scope"))

    def _unauthorized(self, message: str, problem: str | None) -> Refusal:
        error = PolicyError(
            "TOKEN_REFUSED",
            message,
            "Send `Authorization: Bearer TOKEN`; the server's owner makes one with `trainmaster "
            "mcp-tokens add NAME`.",
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
    is_one = header[: len(_SCHEME)].lower() == _SCHEME and 0 < len(token) <= _LONGEST_TOKEN
    return token if is_one else None
