"""What this process, and those that it starts, ask over the network."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.train.hub_server import Handler, Hub

_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_WATCHED = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


@contextmanager
def watched_network(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Inside, every HTTP client is led to a proxy, which answers as a hub without models.

    Gives the list to which `server:port` of everything that is asked is added: through the proxy,
    or by a connection of this process beside it.
    """
    asked: list[str] = []
    served = {"hub": Hub(), "asked": asked}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Proxy", (_Proxy,), served)) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        for name in _VARIABLES:
            patch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
            patch.setenv(name.lower(), f"http://127.0.0.1:{proxy.server_port}")
        patch.delenv("NO_PROXY", raising=False)
        patch.delenv("no_proxy", raising=False)
        _Connections.note(asked, beside=proxy.server_port)
        try:
            yield asked
        finally:
            _Connections.note(None)
            proxy.shutdown()
            thread.join()


class _Proxy(Handler):
    """Refuses tunnels, and answers the requests of a hub's clients."""

    asked: list[str]

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        if is_whole:
            named = urlsplit(self.path)
            is_tunnel = self.command == "CONNECT"
            self.asked.append(self.path if is_tunnel else f"{named.hostname}:{named.port or 80}")
        return is_whole


class _Connections:
    """The one audit hook: Python takes none away again."""

    asked: list[str] | None = None
    proxy_port = 0
    _installed = False

    @classmethod
    def note(cls, asked: list[str] | None, beside: int = 0) -> None:
        cls.asked, cls.proxy_port = asked, beside
        if not cls._installed:
            cls._installed = True
            sys.addaudithook(cls._audit)

    @classmethod
    def _audit(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.asked is None or event not in _WATCHED:
            return
        connection, address = arguments[:2]
        if connection.family in (socket.AF_INET, socket.AF_INET6) and address:
            server, port = address[:2]
            if (server, port) != ("127.0.0.1", cls.proxy_port):
                cls.asked.append(f"{server}:{port}")
