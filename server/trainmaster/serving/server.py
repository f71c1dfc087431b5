"""uvicorn, with connections that are let in by a lobby.

Most of what somebody opens who means harm never gets further. Here a connection costs a descriptor
and a glance at what the kernel holds of it, where uvicorn and asyncio need a transport, a task and
a parser: that is what makes thousands of them cheap enough to pass by.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_network
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from trainmaster.serving.connections import (
    DEADLINES_S,
    Connection,
    Connections,
    Wait,
    most_connections,
)
from trainmaster.serving.protocol import BodyTurns, LimitedProtocol

_LOG = logging.getLogger(__name__)
# Connections that are accepted in a turn of the loop: between them others are served.
_ACCEPTED_AT_ONCE = 8
# A longer header is refused by who parses it.
_LONGEST_HEADER_BYTES = 16 << 10
_NO_DESCRIPTORS_PAUSE_S = 0.2


class LimitedServer(uvicorn.Server):
    """Serves `app` to the connections of listening sockets.

    `most`: connections at once, None: as many as this process can afford. Answers under way get
    `grace_s` once it is to end. `proxies`: addresses and networks whose word on a client's address
    counts. `options` are uvicorn's.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        grace_s: int,
        most: int | None = None,
        proxies: Sequence[str] = (),
        deadlines_s: Mapping[Wait, float] = DEADLINES_S,
        **options: Any,
    ) -> None:
        affordable = most_connections()
        networks = [ip_network(proxy) for proxy in proxies]
        self.limited = Connections(min(most or affordable, affordable), networks, deadlines_s)
        protocol = partial(LimitedProtocol, connections=self.limited, turns=BodyTurns())
        config = uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", protocol),
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies),
            timeout_graceful_shutdown=grace_s,
            **options,
        )
        super().__init__(config)
        self._taking: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, by lobbies."""
        is_tls = self.config.ssl is not None
        lobbies = [
            Lobby(listener, self.limited, self._take, is_tls=is_tls) for listener in sockets or ()
        ]
        self.servers = cast("list[asyncio.base_events.Server]", lobbies)
        self.started = True

    def _take(self, connection: Connection) -> None:
        task = asyncio.create_task(self._speak(connection))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _speak(self, connection: Connection) -> None:
        protocol = partial(
            self.config.http_protocol_class,
            config=self.config,  # type: ignore[call-arg]
            server_state=self.server_state,
            app_state={},
        )
        with suppress(OSError):  # of a handshake that fails: the connection is closed by then
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(protocol, connection, ssl=self.config.ssl)


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
