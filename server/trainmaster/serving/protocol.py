"""HTTP/1.1 by uvicorn, on connections that say what they wait for."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmaster.serving.connections import Connection, Connections, Wait

# Where a request's ASGI scope holds its connection, in `state`.
_KEY = "trainmaster.connection"


def admit_connection(scope: Scope) -> None:
    """The request of this scope has shown a token that counts."""
    connection = scope.get("state", {}).get(_KEY)
    if isinstance(connection, Connection):
        connection.admit()


class LimitedProtocol(H11Protocol):
    """uvicorn's, whose connection knows what it waits for."""

    def __init__(self, *args: Any, connections: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = connections
        self._connection: Connection | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = self._connections.attached(transport)
        self.app_state = {**self.app_state, _KEY: self._connection}

    def data_received(self, data: bytes) -> None:
        if self._connection is not None and self._connection.waits == "next":
            self._connection.wait_for("header")
        super().data_received(data)
        self._say_what_is_awaited()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._say_what_is_awaited()

    def _say_what_is_awaited(self) -> None:
        if self._connection is not None and not self._connection.is_ending:
            self._connection.wait_for(self._awaited(self._connection.waits))

    def _awaited(self, before: Wait) -> Wait:
        if self.transport.is_closing():
            return "end"
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        if self.conn.their_state is h11.IDLE:
            return "header" if before == "header" else "next"
        return "answer"
