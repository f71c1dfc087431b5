"""Whether nodes reach one another: real connections, before anything is started.

Node 0 listens on the run's port. Every other node connects to it by each address that node 0 may
have, until one answers with the nonce, so that it is the right machine. Then each node listens on a
port of those that systems give out by themselves, and connects to every other one's, as the ranks'
libraries will.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trainer_runtime.core.decoding import Fields, decode_fields
from trainer_runtime.core.processes.reaching import Peer
from trainer_runtime.host.nodes.interfaces import own_addresses
from trainer_runtime.host.nodes.unauthenticated import MOST_UNAUTHENTICATED, Unauthenticated

_TRY_S = 3.0
_PAUSE_S = 0.2
_POLL_S = 0.05
_LONGEST_LINE = 4096


def addresses() -> dict[str, Any]:
    """This machine's IPv4 addresses, without those that lead nowhere else, and its time `t`."""
    by_interface = own_addresses()
    others = [address for address in by_interface.values() if not address.startswith("127.")]
    return {"addresses": others, "t": time.time()}


def listen(port: int, nonce: str, nodes: Sequence[str], within_s: float) -> dict[str, Any]:
    """Wait for each of these nodes; by the names of those that came, how many seconds their clocks
    are ahead."""
    try:
        listener = _listener("", port)
    except OSError as error:
        return _not_listening(port, error)
    with listener:
        return {"problem": None, "ahead_s": hear(listener, nonce, nodes, within_s)}


def reach_others(own: Peer, others: Sequence[Peer], nonce: str, within_s: float) -> dict[str, Any]:
    """Listen as `own` says, and connect to each of the others, all of which do so meanwhile;
    `unreached`: by their names why not, of those that can't be connected to."""
    try:
        listener = _listener(own.address, own.port)
    except OSError as error:
        return _not_listening(own.port, error)
    with listener:
        unreached = reach_from(listener, own.name, others, nonce, within_s)
        return {"problem": None, "unreached": unreached}


def reach_from(
    listener: socket.socket, name: str, others: Sequence[Peer], nonce: str, within_s: float
) -> dict[str, str]:
    """As `reach_others`, at a port that is listened on: what is `unreached`. Returns once all of
    the others have come here as well, or can't any more."""

    def try_one(peer: Peer) -> dict[str, Any]:
        return connect(name, [peer.address], peer.port, nonce, within_s)

    with ThreadPoolExecutor(1 + len(others)) as threads:
        names = [peer.name for peer in others]
        hearing = threads.submit(hear, listener, nonce, names, within_s)
        answers = list(threads.map(try_one, others))
        hearing.result()
    return {
        peer.name: f"{peer.address}, port {peer.port}: {answer['tried'].get(peer.address)}"
        for peer, answer in zip(others, answers, strict=True)
        if answer["address"] is None
    }


def hear(
    listener: socket.socket, nonce: str, nodes: Sequence[str], within_s: float
) -> dict[str, float]:
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
    return heard.ahead_s


def connect(
    name: str, candidates: Sequence[str], port: int, nonce: str, within_s: float
) -> dict[str, Any]:
    """Connect to a node by the first of these addresses that works, or by that of its own
    interface which a name or a translated address leads to: its ranks can listen there only.

    `address`: which one, None where none does, with the reason of each under `tried`; `own`: this
    end's address.
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
    return {"address": None, "own": None, "tried": tried}


def _listener(address: str, port: int) -> socket.socket:
    return socket.create_server((address, port), backlog=MOST_UNAUTHENTICATED)


def _not_listening(port: int, error: OSError) -> dict[str, Any]:
    return {"problem": f"port {port} can't be listened on: {os.strerror(error.errno or 0)}"}


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
    with socket.create_connection((address, port), timeout=_TRY_S) as connection:
        own = connection.getsockname()[0]
        _send(connection, {"node": name, "to": address, "nonce": nonce, "t": time.time()})
        answer = _receive(connection, _TRY_S)
        if not _is_same(answer.text("nonce"), nonce[::-1]):
            raise OSError("another program answers there")
        return {"address": answer.text("address"), "own": own}


class _Heard:
    """What nodes have said, each on a connection and in a thread of its own."""

    def __init__(self, nonce: str, nodes: Sequence[str]) -> None:
        self._nonce, self._nodes = nonce, frozenset(nodes)
        self._lock = threading.Lock()
        self._ahead_s: dict[str, float] = {}
        self.unauthenticated = Unauthenticated()

    @property
    def is_awaiting(self) -> bool:
        with self._lock:
            return len(self._ahead_s) < len(self._nodes)

    @property
    def ahead_s(self) -> dict[str, float]:
        """By how many seconds the clocks are ahead of those that were heard."""
        with self._lock:
            return dict(self._ahead_s)

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
        _send(connection, {"nonce": self._nonce[::-1], "address": own})
        if said.text("to") != own:
            return  # it comes again, by this address
        with self._lock:
            if name in self._nodes:
                self._ahead_s[name] = ahead_s


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
