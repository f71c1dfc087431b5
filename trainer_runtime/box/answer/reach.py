"""Whether nodes reach one another: real connections both ways, before anything is started.

Node 0 listens on the run's port. Every other node connects to it by each address that node 0 may
have, until one answers with the nonce, so that it is the right machine; then node 0 connects back
to a port of the other's choice, as the ranks' libraries will.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from trainer_runtime.box.nodes.interfaces import own_addresses
from trainer_runtime.box.nodes.unauthenticated import MOST_UNAUTHENTICATED, Unauthenticated
from trainer_runtime.core.decoding import Fields, decode_fields

_TRY_S = 3.0
_PAUSE_S = 0.2
_POLL_S = 0.05
_LONGEST_LINE = 4096


def addresses() -> dict[str, Any]:
    """This machine's IPv4 addresses, without those that lead nowhere else, and its time `t`."""
    found = own_addresses()
    others = [one for one in found.values() if not one.startswith("127.")]
    return {"addresses": others, "t": time.time()}


def listen(port: int, nonce: str, nodes: Sequence[str], within_s: float) -> dict[str, Any]:
    """Wait for each of these nodes; by the names of those that came what became of the way back,
    and by how many seconds their clocks are ahead."""
    try:
        listener = socket.create_server(("", port), backlog=MOST_UNAUTHENTICATED)
    except OSError as error:
        return {"problem": f"port {port} can't be listened on: {os.strerror(error.errno or 0)}"}
    with listener:
        return {"problem": None, **hear(listener, nonce, nodes, within_s)}


def hear(
    listener: socket.socket, nonce: str, nodes: Sequence[str], within_s: float
) -> dict[str, Any]:
    """As `listen`, at a port that is listened on. Anybody may connect meanwhile, say anything, and
    keep no node from being heard."""
    deadline = time.monotonic() + within_s
    heard = _Heard(nonce, nodes)
    listener.settimeout(_POLL_S)
    while heard.is_awaiting and listener.fileno() >= 0 and time.monotonic() < deadline:
        try:
            connection, _ = listener.accept()
        except TimeoutError:  # nobody came
            continue
        except OSError:  # it has gone already, or too many files are open
            time.sleep(_POLL_S)
            continue
        heard.unauthenticated.add(connection)
        threading.Thread(target=heard.take, args=(connection,), daemon=True).start()
    return heard.found()


def connect(
    name: str, candidates: Sequence[str], port: int, nonce: str, within_s: float
) -> dict[str, Any]:
    """Connect to node 0 by the first of these addresses that works, or by that of its own
    interface which a name or a translated address leads to: its ranks can listen there only.

    `address`: which one, None where none does, with the reason of each under `tried`; `own`: this
    end's address; `back`: why node 0 can't connect to this node, None where it can.
    """
    deadline = time.monotonic() + within_s
    tried: dict[str, str] = {}
    while time.monotonic() < deadline:
        for address in candidates:
            try:
                return {**_reach(name, address, port, nonce), "tried": tried}
            except (OSError, ValueError) as error:
                tried[address] = _reason(error)
        time.sleep(_PAUSE_S)
    return {"address": None, "own": None, "back": None, "tried": tried}


def _reach(name: str, address: str, port: int, nonce: str) -> dict[str, Any]:
    reached = _try(name, address, port, nonce)
    own = reached["address"]
    if own == address:
        return reached
    try:
        return _try(name, own, port, nonce)
    except (OSError, ValueError) as error:
        raise OSError(f"leads to {own}, which can't be reached: {_reason(error)}") from error


def _try(name: str, address: str, port: int, nonce: str) -> dict[str, Any]:
    with (
        socket.create_connection((address, port), timeout=_TRY_S) as connection,
        socket.create_server(("", 0)) as listener,
    ):
        port = listener.getsockname()[1]
        own = connection.getsockname()[0]
        said = {"node": name, "own": own, "to": address, "nonce": nonce, "port": port}
        _send(connection, {**said, "t": time.time()})
        answer = _receive(connection, 3 * _TRY_S)
        if not _is_same(answer.text("nonce"), nonce[::-1]):
            raise OSError("another program answers there")
        return {"address": answer.text("address"), "own": own, "back": answer.find_text("back")}


class _Heard:
    """What nodes have said, each on a connection and in a thread of its own."""

    def __init__(self, nonce: str, nodes: Sequence[str]) -> None:
        self._nonce, self._nodes = nonce, frozenset(nodes)
        self._lock = threading.Lock()
        self._back: dict[str, str | None] = {}
        self._ahead_s: dict[str, float] = {}
        self.unauthenticated = Unauthenticated()

    @property
    def is_awaiting(self) -> bool:
        with self._lock:
            return len(self._back) < len(self._nodes)

    def found(self) -> dict[str, Any]:
        with self._lock:
            return {"back": dict(self._back), "ahead_s": dict(self._ahead_s)}

    def take(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._answer(connection)
            except (OSError, ValueError):
                pass  # a node comes again
            finally:
                self.unauthenticated.remove(connection)

    def _answer(self, connection: socket.socket) -> None:
        said = _receive(connection, _TRY_S)
        if not _is_same(said.text("nonce"), self._nonce):
            raise ValueError("another program")
        self.unauthenticated.remove(connection)
        name, ahead_s = said.text("node"), said.time("t") - time.time()
        own = connection.getsockname()[0]
        if said.text("to") != own:
            _send(connection, {"nonce": self._nonce[::-1], "address": own, "back": None})
            return  # it comes again, by this address
        back = _way_back(said)
        _send(connection, {"nonce": self._nonce[::-1], "address": own, "back": back})
        with self._lock:
            if name in self._nodes:
                self._back[name], self._ahead_s[name] = back, ahead_s


def _way_back(said: Fields) -> str | None:
    """Why a node can't be connected to; None where it can."""
    peer = said.text("own")  # not what a translation makes of it, which its ranks don't know
    try:
        socket.create_connection((peer, said.integer("port")), timeout=_TRY_S).close()
    except (OSError, ValueError, OverflowError) as error:
        return f"{peer}: {_reason(error)}"
    return None


def _is_same(said: str, wanted: str) -> bool:
    return hmac.compare_digest(said.encode(errors="backslashreplace"), wanted.encode())


def _send(connection: socket.socket, message: Mapping[str, object]) -> None:
    connection.settimeout(_TRY_S)
    connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket, within_s: float) -> Fields:
    """The other end's line, which has to be whole within so long.

    Raises:
        OSError, ValueError: it is not, or is not an object.
    """
    deadline, data = time.monotonic() + within_s, b""
    while b"\n" not in data:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or len(data) > _LONGEST_LINE:
            raise TimeoutError
        connection.settimeout(left_s)
        piece = connection.recv(_LONGEST_LINE)
        if not piece:
            raise ConnectionError("the connection was closed")
        data += piece
    return decode_fields(data.partition(b"\n")[0], "what the other end says")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return getattr(error, "strerror", None) or str(error)
