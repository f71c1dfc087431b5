"""Who may read the board: requests to a name of ours, and for data with the token."""

from __future__ import annotations

import ipaddress
import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import PolicyError, TrainmasterError
from trainmaster.serving.protocol import admit_connection

DATA = "/api/"
_BEARER = "Bearer "
# Nothing but our own files runs or styles the page, and no text can become markup in it.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}


def new_token() -> str:
    """256 random bits, for one life of a board."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Access:
    """`names`: what else the board may be called in an address than by numbers or `localhost`.

    `beyond_loopback`: any number is accepted. A browser takes a foreign page's name for the board
    (DNS rebinding), but never a number.
    """

    token: str = field(repr=False)
    names: Collection[str] = ()
    beyond_loopback: bool = False

    def refusal(self, path: str, headers: Headers) -> TrainmasterError | None:
        """Why a request is refused; None where it is not."""
        if not self._is_ours(headers.get("host", "")):
            return PolicyError(
                "ORIGIN_REFUSED",
                "The board is not known by the name in this address.",
                f"Open the address that {command('board')} has printed, or name it: --host-name.",
            )
        if path.startswith(DATA) and not self._is_holder(headers.get("authorization", "")):
            return PolicyError(
                "TOKEN_REFUSED",
                "The request carries no valid token of this board.",
                f"Open the address that {command('board')} has printed; each start has its own.",
            )
        return None

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host).casefold()
        if name == "localhost" or name in {own_name.casefold() for own_name in self.names}:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.beyond_loopback or address.is_loopback

    def _is_holder(self, authorization: str) -> bool:
        token = authorization.removeprefix(_BEARER).encode(errors="replace")
        return secrets.compare_digest(token, self.token.encode())


class Guarded:
    """An application for those who may read, whose answers carry the limits for browsers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refused = self._access.refusal(scope["path"], Headers(scope=scope))
        if refused is None and scope["path"].startswith(DATA):
            admit_connection(scope)
        app = self._app if refused is None else error_response(refused, 403)
        await app(scope, receive, send_guarded)


def error_response(error: TrainmasterError, status: int) -> Response:
    """An error as JSON, as the command line prints it."""
    body = json.dumps({"error": error.to_dict()}, ensure_ascii=False)
    return Response(body, status, media_type="application/json")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
