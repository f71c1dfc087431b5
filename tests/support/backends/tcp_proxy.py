"""A TCP proxy for tests, that adds latency, holds back and cuts."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType

_PIECE_BYTES = 1 << 18
_HELD_BYTES = 1 << 22  # so much a direction holds before its sender is made to wait
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends a reset at once
# Below the ports that the kernel gives to outgoing connections, so that a reconnection finds
# its own again.
_PORTS = range(18000, 32000)
_BLOCK = 250
_asking = threading.Lock()


class CuttingProxy:
    """Passes connections on to `target`, each byte `latency_s` later, until it cuts them.

    It listens on `address`, `port`; `accepted` counts connections, `passed_bytes` both directions.
    """

    def __init__(self, target: tuple[str, int], latency_s: float = 0.0) -> None:
        self.latency_s = latency_s
        self.accepted = self.passed_bytes = 0
        self._target = target
        self._listening = True
        self._frozen = self._closing = False
        self._cut_at: int | None = None
        # A port that the kernel chose would be lost with the first refusal.
        self.address, self.port = "127.0.0.1", free_port("127.0.0.1")
        self._listener = socket.create_server((self.address, self.port))
        self._ways: list[_Way] = []
        self._orders: deque[Callable[[], None]] = deque()
        self._bell, self._ear = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def cut(self) -> None:
        """Reset all connections; new ones are taken."""
        self._order(self._drop_all)

    def cut_after(self, count_bytes: int) -> None:
        """Reset all connections once so many bytes more have been passed on."""
        self._cut_at = self.passed_bytes + count_bytes

    def refuse(self, refusing: bool = True) -> None:
        """Refuse new connections, or take them again; those that are open stay."""
        self._order(lambda: self._listen(not refusing))

    def freeze(self, frozen: bool = True) -> None:
        """Hold all data silently, or continue."""

        def hold() -> None:
            self._frozen = frozen

        self._order(hold)

    def close(self) -> None:
        def end() -> None:
            self._closing = True

        if self._thread.is_alive():
            self._order(end)
            self._thread.join(60)
        for left in (self._listener, self._bell, self._ear):
            left.close()

    def _order(self, action: Callable[[], None]) -> None:
        """Have the proxy's own thread do something; returns when it is done."""
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._orders.append(act)
        self._bell.send(b"!")
        if not done.wait(60):
            raise TimeoutError("the proxy did not answer")

    def _serve(self) -> None:
        while not self._closing:
            ready = self._wait()
            if self._ear.fileno() in ready:
                self._ear.recv(4096)
            while self._orders:
                self._orders.popleft()()
            if self._listening and self._listener.fileno() in ready:
                self._accept()
            for way in list(self._ways):
                if way.source.fileno() in ready or way.sink.fileno() in ready:
                    self._pass_on(way)
        self._drop_all()

    def _wait(self) -> set[int]:
        """The descriptors at which something can be done."""
        poll, wait_s, now = select.poll(), 60.0, time.monotonic()
        wanted = {self._ear.fileno(): select.POLLIN}
        if self._listening:
            wanted[self._listener.fileno()] = select.POLLIN
        for way in self._ways if not self._frozen else ():
            if way.takes_more():
                _want(wanted, way.source, select.POLLIN)
            if way.held and way.held[0][0] <= now:
                _want(wanted, way.sink, select.POLLOUT)
            elif way.held:
                wait_s = min(wait_s, way.held[0][0] - now)
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        found = {descriptor for descriptor, _ in poll.poll(wait_s * 1000 + 1)}
        return found or {
            way.sink.fileno() for way in self._ways if not self._frozen and way.is_due()
        }

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            inner, _ = self._listener.accept()
            try:
                outer = socket.create_connection(self._target, 5)
            except OSError:
                _reset(inner)
                return
            for end in (inner, outer):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setblocking(False)
            self.accepted += 1
            self._ways += [_Way(inner, outer), _Way(outer, inner)]

    def _pass_on(self, way: _Way) -> None:
        try:
            if way.takes_more():
                way.take(self.latency_s)
            self.passed_bytes += way.give()
        except OSError:
            self._drop(way)
        if way.ended and not way.held:
            with contextlib.suppress(OSError):
                way.sink.shutdown(socket.SHUT_WR)
            back = next((other for other in self._ways if other.source is way.sink), None)
            if back is None or (back.ended and not back.held):
                self._drop(way)
        if self._cut_at is not None and self.passed_bytes >= self._cut_at:
            self._cut_at = None
            self._drop_all()

    def _drop(self, way: _Way) -> None:
        self._ways = [other for other in self._ways if other.source not in (way.source, way.sink)]
        _reset(way.source)
        _reset(way.sink)

    def _drop_all(self) -> None:
        while self._ways:
            self._drop(self._ways[0])

    def _listen(self, listening: bool) -> None:
        if listening and not self._listening:
            self._listener.listen()
        elif self._listening and not listening:
            self._listener.shutdown(socket.SHUT_RDWR)  # still bound: nobody else gets the port
        self._listening = listening


class _Way:
    """One direction of a connection, with what is on its way."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.held: deque[tuple[float, memoryview]] = deque()  # when it is due, and what
        self.ended = False
        self._held_bytes = 0

    def takes_more(self) -> bool:
        return not self.ended and self._held_bytes < _HELD_BYTES

    def is_due(self) -> bool:
        return bool(self.held) and self.held[0][0] <= time.monotonic()

    def take(self, latency_s: float) -> None:
        with contextlib.suppress(BlockingIOError):
            data = self.source.recv(_PIECE_BYTES)
            self.ended = not data
            if data:
                self.held.append((time.monotonic() + latency_s, memoryview(data)))
                self._held_bytes += len(data)

    def give(self) -> int:
        """Send what is due, as much as the sink takes; how much that was."""
        given = 0
        with contextlib.suppress(BlockingIOError):
            while self.is_due():
                due, data = self.held.popleft()
                try:
                    sent = self.sink.send(data)
                except BlockingIOError:
                    sent = 0
                if sent < len(data):
                    self.held.appendleft((due, data[sent:]))
                given += sent
                self._held_bytes -= sent
                if sent < len(data):
                    break
        return given


def free_port(address: str) -> int:
    """A port of this machine that nobody uses, and that no other test was given, here or in another
    process."""
    while True:
        with _asking:
            port = next(_ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port


def _own_ports() -> Iterator[int]:
    """Those of blocks that no other process has: holding a block's name is what claims it."""
    claims, own = [], list[int]()
    for begin in range(_PORTS.start, _PORTS.stop, _BLOCK):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ports-of-tests-{begin}")
        except OSError:
            claim.close()
            continue
        claims.append(claim)
        block = range(begin, begin + _BLOCK)
        own += block
        yield from block
    while True:
        yield from own


_ports = _own_ports()


def _want(wanted: dict[int, int], end: socket.socket, events: int) -> None:
    wanted[end.fileno()] = wanted.get(end.fileno(), 0) | events


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
