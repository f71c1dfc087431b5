"""Where connections wait until they have sent a request's header, or begun TLS.

Most of what somebody opens who means harm never gets further. Here a connection costs a descriptor
and a glance at what the kernel holds of it, where uvicorn and asyncio need a transport, a task and
a parser: that is what makes thousands of them cheap enough to pass by.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from trainmaster.serving.connections import Connection, Connections

_LOG = logging.getLogger(__name__)
# Connections that are accepted in a turn of the loop: between them others are served.
_ACCEPTED_AT_ONCE = 8
# A longer header is refused by who parses it.
_LONGEST_HEADER_BYTES = 16 << 10
_NO_DESCRIPTORS_PAUSE_S = 0.2


class Lobby:
    """Of one listening socket. `take` gets each connection that is ready for a protocol."""

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        take: Callable[[Connection], None],
        *,
        is_tls: bool,
    ) -> None:
        self._listener = listener
        self._connections = connections
        self._take = take
        self._is_tls = is_tls
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        listener.setblocking(False)
        self._begin()

    def close(self) -> None:
        """Accept none any more, and end those that wait here. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._listener)
            self._connections.end_waiting()

    async def wait_closed(self) -> None:
        """As asyncio's servers have it."""

    def _begin(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._connections.is_overfull:
                return
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor or no memory is left
                self._pause(error)
                return
            connection = self._connections.accepted(accepted, str(address[0]))
            if connection is not None:
                self._inspect(connection)

    def _pause(self, error: OSError) -> None:
        self._connections.end_unauthenticated()
        self._loop.remove_reader(self._listener)
        self._loop.call_later(_NO_DESCRIPTORS_PAUSE_S, self._begin)
        _LOG.warning("No connection can be accepted: %s", error.strerror)

    def _inspect(self, connection: Connection) -> None:
        try:
            seen = connection.recv(_LONGEST_HEADER_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            connection.inspect_again(self._loop, self._inspect, 1)
            return
        except OSError:
            connection.end()
            return
        if not seen:  # its client has left
            connection.end()
        elif self._is_tls or _is_whole(seen):
            connection.leave_lobby()
            self._take(connection)
        else:
            connection.inspect_again(self._loop, self._inspect, len(seen) + 1)


def _is_whole(seen: bytes) -> bool:
    return b"\n\r\n" in seen or b"\n\n" in seen or len(seen) >= _LONGEST_HEADER_BYTES
