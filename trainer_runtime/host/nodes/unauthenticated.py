"""Connections of which nobody knows yet whose they are."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

MOST_UNAUTHENTICATED = 64


class Unauthenticated:
    """Connections that have not proved yet that they know the secret: bounded in number. The one
    that has taken longest is ended for the next, since a program that knows it needs moments."""

    def __init__(self, most: int = MOST_UNAUTHENTICATED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, None] = {}

    def add(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections[connection] = None
            if len(self._connections) > self._most:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its reader finds the end

    def remove(self, connection: socket.socket) -> None:
        """Of one that is known now, or is about to be closed."""
        with self._lock:
            self._connections.pop(connection, None)
