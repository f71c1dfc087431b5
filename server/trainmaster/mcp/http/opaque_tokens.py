"""Tokens that only the authorization server understands (RFC 7662).

It is asked once about a token for all who show it meanwhile, and its answer counts for a moment,
also that a token is none. Who shows tokens that are none can't have it asked without end: unknown
tokens have an allowance by address and in all. Tokens that counted a moment ago have none.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainmaster.errors.errors import StateError
from trainmaster.mcp.http.authentication import Identity
from trainmaster.mcp.http.authorization_server import AuthorizationServer
from trainmaster.mcp.http.claims import identity_of
from trainmaster.mcp.http.limits import RequestLimit
from trainmaster.mcp.http.signed_tokens import LEEWAY_S
from trainmaster.settings.server_settings import OAuthSettings

# An answer counts for so long: a revoked token ends by then.
_ANSWER_COUNTS_S = 30.0
# A token that counted needs no allowance for so long, however often it is asked about.
_KNOWN_FOR_S = 3600.0
_MOST_ANSWERS = 10_000
# Questions about unknown tokens: a minute, and at once.
_OF_AN_ADDRESS = (30, 10)
_IN_ALL = (300, 60)
_MOST_UNDER_WAY = 16


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
