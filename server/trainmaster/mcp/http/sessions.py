"""The sessions of the protocols up to 2025-11-25: whose they are, and which one ends for a new one.

The SDK opens them, ends those that are idle, and limits only how many there are in all. What is
open is seen by the requests that pass; one is ended as its client would end it, by DELETE.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainmaster.mcp.http.authentication import Identity, Principal
from trainmaster.mcp.http.quotas import busy, too_much

MOST_OF_A_USER = 32
MOST_IN_ALL = 1000
_ENDING: Scope = {"type": "http", "method": "DELETE", "path": "/", "query_string": b""}


@dataclass(slots=True)
class _Session:
    """`user`: as the SDK has it; `requests`: under way."""

    server: ASGIApp
    principal: Principal
    user: object
    requests: int = 0
    used_s: float = field(default_factory=time.monotonic)


class Sessions:
    """Those of all roles' servers."""

    def __init__(self) -> None:
        self._open: dict[str, _Session] = {}
        self._opening: Counter[Principal] = Counter()

    async def serve(
        self, server: ASGIApp, identity: Identity, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Pass a request on. Raises: Refusal: 429 or 503, it would open one too many."""
        headers = Headers(scope=scope)
        session = self._open.get(headers.get(MCP_SESSION_ID_HEADER, ""))
        if session is not None and session.principal == identity.principal:
            await self._serve_in(session, server, scope, receive, send)
        elif MCP_SESSION_ID_HEADER not in headers and _has_sessions(headers):
            await self._serve_opening(server, identity, scope, receive, send)
        else:
            await server(scope, receive, send)

    async def _serve_in(
        self, session: _Session, server: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_over = scope["method"] == "DELETE" and message["status"] < 400
                if is_over or message["status"] == 404:
                    self._open.pop(Headers(scope=scope)[MCP_SESSION_ID_HEADER], None)
            await send(message)

        session.requests += 1
        try:
            await server(scope, receive, watched)
        finally:
            session.requests -= 1
            session.used_s = time.monotonic()

    async def _serve_opening(
        self, server: ASGIApp, identity: Identity, scope: Scope, receive: Receive, send: Send
    ) -> None:
        session = _Session(server, identity.principal, scope["user"], requests=1)

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                session_id = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER)
                if session_id is not None:
                    self._open[session_id] = session
            await send(message)

        self._opening[identity.principal] += 1
        try:
            await self._make_room(identity)
            await server(scope, receive, watched)
        finally:
            session.requests -= 1
            session.used_s = time.monotonic()
            self._opening[identity.principal] -= 1
            self._opening += Counter()  # without those that have none

    async def _make_room(self, identity: Identity) -> None:
        """End the oldest idle session of a user who has too many, or of the one who has most."""
        self._forget_expired()
        counts = Counter(session.principal for session in self._open.values())
        own = counts[identity.principal] + self._opening[identity.principal]
        if own > MOST_OF_A_USER and not await self._end_oldest(identity.principal):
            raise too_much(identity, f"{MOST_OF_A_USER} sessions in use")
        if counts.total() + self._opening.total() > MOST_IN_ALL:
            (largest, _), *_rest = counts.most_common(1)
            if not await self._end_oldest(largest):
                raise busy(f"{MOST_IN_ALL} sessions are in use.")

    async def _end_oldest(self, principal: Principal) -> bool:
        idle = {
            session_id: session
            for session_id, session in self._open.items()
            if session.principal == principal and not session.requests
        }
        if not idle:
            return False
        session_id = min(idle, key=lambda session_id: idle[session_id].used_s)
        session = self._open.pop(session_id)
        header = (MCP_SESSION_ID_HEADER.encode(), session_id.encode())
        ending = {**_ENDING, "headers": [header], "user": session.user}
        await session.server(ending, _no_body, _unheard)
        return True

    def _forget_expired(self) -> None:
        ended_s = time.monotonic() - DEFAULT_SESSION_IDLE_TIMEOUT
        for session_id, session in list(self._open.items()):
            if not session.requests and session.used_s < ended_s:
                del self._open[session_id]


def _has_sessions(headers: Headers) -> bool:
    """Whether a request is of a protocol with sessions; a header that is missing means so."""
    version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(_: Message) -> None:
    pass
