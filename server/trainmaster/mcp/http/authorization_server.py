"""Requests to the authorization server."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from trainmaster.errors.errors import HostError

_LARGEST_REPLY_BYTES = 1 << 20
# httpx's own time-outs are of each read, which a byte a second would satisfy.
_WHOLE_REPLY_WITHIN_S = 15.0


class AuthorizationServer:
    """The one of the settings, as its documents and replies have it. `within_s`: a whole reply."""

    def __init__(
        self, client: httpx.AsyncClient, issuer: str, *, within_s: float = _WHOLE_REPLY_WITHIN_S
    ) -> None:
        self._client = client
        self.issuer = issuer
        self._within_s = within_s

    async def document(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        """The JSON object at `url`. Raises: HostError, `AUTHORIZATION_UNREACHABLE`."""
        try:
            async with (
                asyncio.timeout(self._within_s),
                self._client.stream(method, url, **options) as response,
            ):
                response.raise_for_status()
                data = b""
                async for part in response.aiter_bytes():
                    data += part
                    if len(data) > _LARGEST_REPLY_BYTES:
                        raise ValueError("it is too large")
            document = httpx.Response(200, content=data).json()
            if not isinstance(document, dict):
                raise ValueError("it is not an object")
        except (httpx.HTTPError, TimeoutError, ValueError, RecursionError) as error:
            raise self.unusable(url, type(error).__name__) from error
        return document

    def unusable(self, url: str, reason: str) -> HostError:
        """What a reply means that says nothing."""
        return HostError(
            "AUTHORIZATION_UNREACHABLE",
            f"The authorization server does not answer at {url} as it should: {reason}.",
            "Try again soon; the server's owner checks `server.oauth` in the settings.",
            retryable=True,
        )
