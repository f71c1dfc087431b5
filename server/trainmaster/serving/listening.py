"""The sockets on which the client's servers listen."""

from __future__ import annotations

import socket

from trainmaster.errors.errors import UsageError

# Of the kernel's queue: who knocks while many are let in is not lost.
_BACKLOG = 4096


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free.

    It names TCP as its protocol: asyncio turns Nagle's algorithm off only then, and with it each
    answer in two segments waits 40 ms for the client's acknowledgement.

    Raises:
        UsageError: `ADDRESS_UNUSABLE`.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise UsageError(
            "ADDRESS_UNUSABLE",
            f"Port {port} of {address} can't be used: {getattr(error, 'strerror', None) or error}.",
            "Name an address of this machine (--address) and a free port (--port 0: any).",
            field="port",
        ) from error
    return listener
