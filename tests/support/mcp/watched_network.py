"""What this process, and those that it starts, ask over the network, and who of them does."""

from __future__ import annotations

import os
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.session.leftovers import described
from support.train.hub_server import Handler, Hub

_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_WATCHED = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_FRAMES = 12


@dataclass(frozen=True)
class Asked:
    """`server`: `name:port`; `by`: the thread of this process and its innermost frames, or the
    command line and folder of another process."""

    server: str
    by: str


@contextmanager
def watched_network(patch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    """Inside, every HTTP client is led to a proxy, which answers as a hub without models.

    Gives the list to which everything that is asked is added: through the proxy, or by a
    connection of this process beside it.
    """
    asked: list[Asked] = []
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

    asked: list[Asked]

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        if is_whole:
            named = urlsplit(self.path)
            is_tunnel = self.command == "CONNECT"
            server = self.path if is_tunnel else f"{named.hostname}:{named.port or 80}"
            self.asked.append(Asked(server, _client(self.client_address[1])))
        return is_whole


class _Connections:
    """The one audit hook: Python takes none away again. `callers`: by descriptor, who connected
    to the proxy."""

    asked: list[Asked] | None = None
    callers: dict[int, str]
    proxy_port = 0
    _installed = False

    @classmethod
    def note(cls, asked: list[Asked] | None, beside: int = 0) -> None:
        cls.asked, cls.proxy_port, cls.callers = asked, beside, {}
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
            if (server, port) == ("127.0.0.1", cls.proxy_port):
                cls.callers[connection.fileno()] = _this_thread()
            else:
                cls.asked.append(Asked(f"{server}:{port}", _this_thread()))


def _this_thread() -> str:
    frames = traceback.extract_stack()[-_FRAMES:-2]
    stack = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return f"thread {threading.current_thread().name}: {' > '.join(stack)}"


def _client(port: int) -> str:
    """Who connects from this port of the machine, as far as it can still be seen."""
    held = f"socket:[{_inode(port)}]"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") == held:
                        is_own = int(pid) == os.getpid()
                        own = _Connections.callers.get(int(descriptor), "this process")
                        return own if is_own else f"process {described(int(pid))}"
    return "a client that is gone"


def _inode(port: int) -> str:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return next((row[9] for row in rows if row[1].endswith(f":{port:04X}")), "none")
