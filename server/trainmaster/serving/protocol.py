"""HTTP/1.1 by uvicorn, on connections that say what they wait for.

What somebody sends is parsed in small pieces, those of bodies one for each turn of the loop:
parsing costs far more than sending. A connection continues after a request that has shown a token
that counts; after any other its answer is the last thing on it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainmaster.serving.connections import Connection, Connections, Wait

# Where a request's ASGI scope holds its protocol, in `state`.
_KEY = "trainmaster.protocol"
_PIECE_BYTES = 4 << 10
_CLOSE = (b"connection", b"close")


def admit_connection(scope: Scope) -> None:
    """The request of this scope has shown a token that counts."""
    protocol = scope.get("state", {}).get(_KEY)
    if isinstance(protocol, LimitedProtocol):
        protocol.admit()


class BodyTurns:
    """Those whose requests' bodies wait to be read: one reads a piece in each turn of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[LimitedProtocol] = deque()

    def await_turn(self, protocol: LimitedProtocol) -> None:
        self._waiting.append(protocol)
        if len(self._waiting) == 1:
            protocol.loop.call_soon(self._next)

    def _next(self) -> None:
        protocol = self._waiting.popleft()
        if self._waiting:
            protocol.loop.call_soon(self._next)
        protocol.take_turn()


class LimitedProtocol(H11Protocol, asyncio.BufferedProtocol):
    """uvicorn's, whose connection knows what it waits for."""

    def __init__(
        self, *args: Any, connections: Connections, turns: BodyTurns, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._connections = connections
        self._turns = turns
        self._piece = memoryview(bytearray(_PIECE_BYTES))
        self._connection: Connection | None = None
        self._closes = False
        self._waits_for_turn = False
        self._is_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = self._connections.attached(transport)
        self.app_state = {**self.app_state, _KEY: self}

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._piece

    def buffer_updated(self, size: int) -> None:
        if not self._is_over:
            self.data_received(bytes(self._piece[:size]))

    def data_received(self, data: bytes) -> None:
        if self._connection is not None and self._connection.waits == "next":
            self._connection.wait_for("header")
        super().data_received(data)
        self._say_what_is_awaited()
        if self.conn.their_state is h11.SEND_BODY and not self._waits_for_turn:
            self._waits_for_turn = True
            self.transport.pause_reading()
            self._turns.await_turn(self)

    def take_turn(self) -> None:
        """Read one more piece."""
        self._waits_for_turn = False
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._closes = _CLOSE not in self.headers
            self.headers += [_CLOSE] * self._closes  # the answer will have it, too
            self.cycle.transport = cast("asyncio.Transport", _Answering(self))

    def admit(self) -> None:
        """The request under way has shown a token that counts."""
        if self._closes:
            self.headers.remove(_CLOSE)
            self._closes = False
        if self._connection is not None:
            self._connection.admit()

    def on_response_complete(self) -> None:
        if not self._is_over:
            super().on_response_complete()
            self._say_what_is_awaited()

    def end_after_answer(self) -> None:
        """What still comes is dropped, unparsed: who sends first and reads then gets the answer."""
        self._is_over = True
        if self._connection is not None:
            self._connection.wait_for("end")
        if not self.transport.can_write_eof():  # TLS ends both ways at once
            self.transport.close()
        elif not self.transport.is_closing():
            self.transport.write_eof()
            self.transport.resume_reading()

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


class _Answering:
    """The transport as an answer has it: the end of the answer doesn't take it from the client."""

    def __init__(self, protocol: LimitedProtocol) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self.close = protocol.end_after_answer
