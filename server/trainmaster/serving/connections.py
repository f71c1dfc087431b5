"""The connections of a server: how many it holds, how long they may be slow, and who gives way.

A connection is unauthenticated until a request on it has shown a token that counts. Such ones are
held only as long as there is room: for a new one the oldest goes, of the address that has the most
of them. So the newest are always served, whatever is left open before them. A connection counts
from its acceptance, before TLS, to the close of its descriptor.
"""

from __future__ import annotations

import asyncio
import math
import resource
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Literal

# What a connection waits for: of its client a request's header, its body or the next request; of
# the server the answer; or for the last bytes to be taken.
Wait = Literal["header", "body", "next", "answer", "end"]

# In all, however many bytes come meanwhile. An answer, as a stream of events, has no deadline for
# those who are admitted.
DEADLINES_S: Mapping[Wait, float] = {
    "header": 10.0,
    "body": 60.0,
    "next": 10.0,
    "answer": 30.0,
    "end": 5.0,
}
_SWEEP_EVERY_S = 1.0
# Those that end still have a descriptor for a moment.
_MOST_ENDING = 128
_MOST_DESCRIPTORS = 4096
_MOST_CONNECTIONS = 1024
_LEAST_CONNECTIONS = 16

_BUSY = b"503 Service Unavailable\r\nRetry-After: 5"
_TOO_SLOW = b"408 Request Timeout"

Network = IPv4Network | IPv6Network


class Connection(socket.socket):
    """An accepted connection. It counts until it is closed."""

    def __init__(self, accepted: socket.socket, address: str, owner: Connections) -> None:
        kind = (accepted.family, accepted.type, accepted.proto)
        super().__init__(*kind, fileno=accepted.detach())
        self.number = self.fileno()
        self.address = address
        self.is_admitted = False
        self.is_ending = False
        self.is_taken = False
        self.waits: Wait = "header"
        self.deadline_s = time.monotonic() + owner.deadlines_s["header"]
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._inspecting: asyncio.AbstractEventLoop | None = None

    def inspect_again(
        self, loop: asyncio.AbstractEventLoop, inspect: Callable[[Connection], None], size: int
    ) -> None:
        """Have `inspect` called once `size` bytes of it are there, or its client has left."""
        if size > 1:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
        if self._inspecting is None:
            self._inspecting = loop
            loop.add_reader(self, inspect, self)

    def leave_lobby(self) -> None:
        """A protocol is to have it."""
        if self._inspecting is not None:
            self._end_inspection()
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        self.is_taken = True

    def attach(self, transport: asyncio.Transport) -> None:
        """Its protocol speaks from now on, by this transport."""
        self._transport = transport

    def admit(self) -> None:
        """A request on it has shown a token that counts."""
        if not self.is_admitted:
            self.is_admitted = True
            self._owner.admitted(self)
            self._set_deadline()

    def wait_for(self, wait: Wait) -> None:
        """A deadline begins with each wait, and no byte moves it."""
        if wait != self.waits:
            self.waits = wait
            self._set_deadline()

    def end(self, answer: bytes = _TOO_SLOW) -> None:
        """End it, whatever its client or its protocol does; `answer` to a header not yet whole."""
        self.is_ending = True
        self.deadline_s = time.monotonic() + self._owner.deadlines_s["end"]
        self._owner.ending(self)
        if not self.is_taken:
            _send(self, answer)
            self.close()
        elif self._transport is None:  # within TLS's handshake, which sees that as its end
            self._shutdown()
        else:
            if self.waits == "header" and answer:
                self._transport.write(_whole(answer))
            self._transport.abort()

    def close(self) -> None:
        self._end_inspection()
        super().close()
        self._owner.closed(self)

    def _end_inspection(self) -> None:
        if self._inspecting is not None:
            self._inspecting.remove_reader(self)
            self._inspecting = None

    def _set_deadline(self) -> None:
        is_unlimited = self.waits == "answer" and self.is_admitted
        seconds = math.inf if is_unlimited else self._owner.deadlines_s[self.waits]
        self.deadline_s = time.monotonic() + seconds

    def _shutdown(self) -> None:
        with suppress(OSError):  # gone already
            self.shutdown(socket.SHUT_RDWR)


class Connections:
    """Those of one server, `most` at once. `proxies` carry others' requests: theirs count as
    authenticated."""

    def __init__(
        self,
        most: int,
        proxies: Sequence[Network] = (),
        deadlines_s: Mapping[Wait, float] = DEADLINES_S,
    ) -> None:
        self.most = most
        self.deadlines_s = deadlines_s
        self._proxies = proxies
        self._open: dict[int, Connection] = {}
        self._ending: set[Connection] = set()
        # By address; of each the oldest first.
        self._unauthenticated: dict[str, dict[Connection, None]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_overfull(self) -> bool:
        """Whether none may be accepted before those that end are closed."""
        return len(self._open) >= self.most + _MOST_ENDING

    def accepted(self, accepted: socket.socket, address: str) -> Connection | None:
        """Hold one more; None where that is refused, and closed."""
        accepted.setblocking(False)
        is_full = len(self._open) - len(self._ending) >= self.most
        if is_full and not self._make_room():
            _send(accepted, _BUSY)
            accepted.close()
            return None
        connection = Connection(accepted, _holder(address), self)
        self._open[connection.number] = connection
        if any(ip_address(address.partition("%")[0]) in network for network in self._proxies):
            connection.is_admitted = True
        else:
            self._unauthenticated.setdefault(connection.address, {})[connection] = None
        if self._sweeping is None:
            self._sweep()
        return connection

    def attached(self, transport: asyncio.Transport) -> Connection:
        """The connection of a transport."""
        connection = self._open[transport.get_extra_info("socket").fileno()]
        connection.attach(transport)
        return connection

    def admitted(self, connection: Connection) -> None:
        """It is authenticated."""
        of_address = self._unauthenticated.get(connection.address, {})
        of_address.pop(connection, None)
        if not of_address:
            self._unauthenticated.pop(connection.address, None)

    def ending(self, connection: Connection) -> None:
        """It gives its place away."""
        self.admitted(connection)
        if self._open.get(connection.number) is connection:
            self._ending.add(connection)

    def closed(self, connection: Connection) -> None:
        """It has no descriptor any more. Idempotent."""
        self.admitted(connection)
        self._ending.discard(connection)
        if self._open.get(connection.number) is connection:
            del self._open[connection.number]

    def end_unauthenticated(self) -> None:
        """For descriptors that are needed at once."""
        for unauthenticated in list(self._unauthenticated.values()):
            for connection in list(unauthenticated):
                connection.end(_BUSY)

    def end_waiting(self) -> None:
        """Those that no protocol has."""
        for connection in list(self._open.values()):
            if not connection.is_taken:
                connection.end(_BUSY)

    def _make_room(self) -> bool:
        of_largest = max(self._unauthenticated.values(), key=len, default={})
        waiting = filter(_gives_way, self._open.values())
        connection = next(iter(of_largest), None) or min(waiting, key=_deadline_s, default=None)
        if connection is not None:
            connection.end(_BUSY)
        return connection is not None

    def _sweep(self) -> None:
        now_s = time.monotonic()
        for connection in list(self._open.values()):
            if connection.deadline_s <= now_s:
                connection.end(_TOO_SLOW)
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(_SWEEP_EVERY_S, self._sweep) if self._open else None


def most_connections() -> int:
    """Half of the descriptors that this process may have, after it has raised that number where
    it may: databases, hosts and files have the other half."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_MOST_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(_MOST_CONNECTIONS, soft // 2))


def _gives_way(connection: Connection) -> bool:
    return not connection.is_ending and connection.deadline_s < math.inf


def _deadline_s(connection: Connection) -> float:
    return connection.deadline_s


def _holder(address: str) -> str:
    """Who an address counts for: of IPv6 its network, which one host has all of."""
    if ":" not in address:
        return address
    number = IPv6Address(address.partition("%")[0])
    return str(number.ipv4_mapped or number.exploded[:19])


def _send(connection: socket.socket, answer: bytes) -> None:
    with suppress(OSError):  # it may be gone, and is owed nothing
        connection.send(_whole(answer))


def _whole(answer: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % answer
