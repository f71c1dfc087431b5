"""The sockets on which the client's servers listen."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from trainmaster.serving.connections import Connections, Network, most_connections
from trainmaster.words.errors import UsageError

# Of the kernel's queue: who knocks while many are let in is not lost.
_BACKLOG = 4096


class Listener(socket.socket):
    """Accepts as many connections as there is room for. A method of asyncio's is overridden, so
    that connections count before TLS."""

    connections: Connections

    def listen(self, _backlog: int = _BACKLOG, /) -> None:
        """The queue's length is ours, whatever asyncio asks for."""
        super().listen(_BACKLOG)

    def accept(self) -> tuple[socket.socket, object]:
        """Raises: OSError; of those BlockingIOError and ConnectionAbortedError mean: not now."""
        if self.connections.is_overfull:
            raise BlockingIOError
        try:
            accepted, address = super().accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self.connections.end_strangers()
            raise
        connection = self.connections.accepted(accepted, str(address[0]))
        if connection is None:
            raise ConnectionAbortedError
        return connection, address


def listen(
    address: str, port: int, *, most: int | None = None, proxies: Sequence[Network] = ()
) -> Listener:
    """A socket that listens; port 0 is any that is free. `most`: connections at once, None: as
    many as this process can afford.

    It names TCP as its protocol: asyncio turns Nagle's algorithm off only then, and with it each
    answer in two segments waits 40 ms for the client's acknowledgement.

    Raises:
        UsageError: `ADDRESS_UNUSABLE`.
    """
    affordable = most_connections()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.connections = Connections(min(most or affordable, affordable), proxies)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise UsageError(
            "ADDRESS_UNUSABLE",
            f"Port {port} of {address} can't be used: {getattr(error, 'strerror', None) or error}.",
            "Name an address of this machine (--address) and a free port (--port 0: any).",
            field="port",
        ) from error
    return listener
