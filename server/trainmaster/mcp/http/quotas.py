"""How much one user may have under way at once, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive

from trainer_runtime.core.protocol.figures import size_text
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.mcp.http.authentication import Identity, Principal
from trainmaster.mcp.http.refusal import Refusal, retry_after

# Each of the sessions that a user may have can have a stream, and as many requests beside them all.
MOST_REQUESTS = 64
# Of requests' bodies. The largest has 2 MiB, and each is in memory some three times.
MOST_OF_A_BODY = 2 << 20
MOST_BODY_BYTES = 8 << 20
MOST_BODY_BYTES_IN_ALL = 32 << 20
# Of a body: each begins a value of some 70 bytes in memory, which a session keeps until its next.
MOST_VALUES = 20_000
_AGAIN_AFTER_S = 5.0


class _Share:
    """What one user has under way."""

    def __init__(self) -> None:
        self.requests = 0
        self.body_bytes = 0


class Quotas:
    """The shares of all users who have something under way."""

    def __init__(self) -> None:
        self._shares: dict[Principal, _Share] = {}
        self._body_bytes = 0

    @contextmanager
    def request(self, identity: Identity, receive: Receive) -> Iterator[Receive]:
        """Count a request while it lasts. Its body is read by what this gives.

        Raises: Refusal: 429 for one who has too much under way, also while the body is read; 503
            where all together have.
        """
        share = self._shares.setdefault(identity.principal, _Share())
        if share.requests >= MOST_REQUESTS:
            raise too_much(identity, f"{MOST_REQUESTS} requests at once")
        body_bytes = values = 0

        async def counted() -> Message:
            nonlocal body_bytes, values
            message = await receive()
            body = message.get("body", b"")
            body_bytes += len(body)
            self._count(share, len(body))
            self._refuse_beyond(identity, share)
            values += sum(body.count(begin) for begin in b"{[,")
            if values > MOST_VALUES:
                raise _too_intricate()
            return message

        share.requests += 1
        try:
            yield counted
        finally:
            share.requests -= 1
            self._count(share, -body_bytes)
            if not share.requests:
                self._shares.pop(identity.principal, None)

    def _count(self, share: _Share, size: int) -> None:
        share.body_bytes += size
        self._body_bytes += size

    def _refuse_beyond(self, identity: Identity, share: _Share) -> None:
        if share.body_bytes > MOST_BODY_BYTES:
            raise too_much(identity, f"{size_text(MOST_BODY_BYTES)} of requests at once")
        if self._body_bytes > MOST_BODY_BYTES_IN_ALL:
            raise busy("Its users are sending more than it can hold.")


def _too_intricate() -> Refusal:
    return Refusal(
        413,
        UsageError(
            "BAD_ARGUMENT",
            f"A request may have {MOST_VALUES:,} braces, brackets and commas.",
            "Put a long text into a file, and name that.",
        ),
        _closing(),
    )


def too_much(identity: Identity, what: str) -> Refusal:
    """429: one user's own doing."""
    error = StateError(
        "CALL_LIMIT",
        f"{identity.name} has {what}, which is the limit of one user.",
        "Wait until some have ended; close sessions that are not used.",
        retryable=True,
    )
    return Refusal(429, error, _closing())


def busy(why: str) -> Refusal:
    """503: nobody's own doing."""
    error = StateError("SERVER_BUSY", f"The server is busy. {why}", "Try again.", retryable=True)
    return Refusal(503, error, _closing())


def _closing() -> dict[str, str]:
    """What is left of the request is not read."""
    return {**retry_after(_AGAIN_AFTER_S), "Connection": "close"}
