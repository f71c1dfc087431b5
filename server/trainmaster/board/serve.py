"""Serves the board, and follows the hosts of open runs as long as a page is shown."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from trainmaster.board.access import Access, new_token
from trainmaster.board.app import BoardApp
from trainmaster.errors.errors import UsageError
from trainmaster.serving.listening import listen
from trainmaster.serving.server import LimitedServer
from trainmaster.sync.followed_hosts import FollowedHosts
from trainmaster.sync.workspace import Workspace

LOOPBACK = "127.0.0.1"
# A page asks every few seconds, one that is hidden not at all.
_SEEN_FOR_S = 60.0
_FOLLOWED_EVERY_S = 1.0
_MOST_CONNECTIONS = 128


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a board listens: port 0 is any that is free. Other addresses than this machine's own
    have to be allowed. `names`: what else it is called in its readers' addresses."""

    address: str = LOOPBACK
    port: int = 0
    allows_remote: bool = False
    names: Sequence[str] = ()


_ON_LOOPBACK = Listening()


class Board:
    """A board that listens from the beginning; `serve` answers until `end` is called."""

    def __init__(self, workspace: Workspace, listening: Listening = _ON_LOOPBACK) -> None:
        """Raises: UsageError: `BAD_ARGUMENT`, the address is not allowed; `ADDRESS_UNUSABLE`."""
        is_remote = not _is_loopback(listening.address)
        if is_remote and not listening.allows_remote:
            raise _not_allowed(listening.address)
        self._workspace = workspace
        self._socket = listen(listening.address, listening.port)
        self._token = new_token()
        self.address, self.port = self._socket.getsockname()[:2]
        self._app = BoardApp(
            workspace, Access(self._token, tuple(listening.names), beyond_loopback=is_remote)
        )
        self._server = _Server(self._app.asgi, grace_s=1, most=_MOST_CONNECTIONS)

    @property
    def url(self) -> str:
        """The address with the token, behind a `#`: a browser sends that part to nobody."""
        name = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{name}:{self.port}/#token={self._token}"

    def end(self) -> None:
        self._server.should_exit = True

    async def serve(self) -> None:
        """Answer until `end`.

        Raises:
            StorageError, sqlite3.Error: the home can't be used any more.
        """
        following = asyncio.create_task(self._follow())
        following.add_done_callback(lambda _: self.end())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            if not following.done():
                following.cancel()
            await asyncio.wait([following])
        if not following.cancelled():
            following.result()

    async def _follow(self) -> None:
        followed = FollowedHosts(self._workspace)
        try:
            while True:
                is_seen = time.monotonic() - self._app.seen_t < _SEEN_FOR_S
                hosts = self._workspace.control.hosts_of_open_runs() if is_seen else []
                await followed.follow(hosts)
                await asyncio.sleep(_FOLLOWED_EVERY_S)
        finally:
            await followed.follow(())


class _Server(LimitedServer):
    """Leaves signals to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _not_allowed(address: str) -> UsageError:
    return UsageError(
        "BAD_ARGUMENT",
        f"At {address} others on the network could reach the board, without encryption.",
        "Keep it on 127.0.0.1 and reach it by `ssh -L`; or add --allow-remote.",
        field="address",
    )
