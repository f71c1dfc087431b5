"""Requests to the authorization server."""

from __future__ import annotations

from typing import Any

import httpx

from trainmaster.words.errors import HostError

_LARGEST_REPLY_BYTES = 1 << 20


class AuthorizationServer:
    """The one of the settings, as its documents and replies have it."""

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
            document = httpx.Response(200, content=data).json()
            if not isinstance(document, dict):
                raise ValueError("it is not an object")
        except (httpx.HTTPError, ValueError, RecursionError) as error:
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
