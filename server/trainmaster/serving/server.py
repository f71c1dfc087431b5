"""uvicorn, with connections that are let in by a lobby."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
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
from trainmaster.serving.lobby import Lobby
from trainmaster.serving.protocol import BodyTurns, LimitedProtocol


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
