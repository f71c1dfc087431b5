"""Whether nodes reach one another: real connections both ways, before anything is started.

Node 0 listens on the run's port. Every other node connects to it by each address that node 0 may
have, until one answers with the nonce, so that it is the right machine; then node 0 connects back
to a port of the other's choice, as the ranks' libraries will.
"""

from __future__ import annotations

import hmac
import json
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from trainer_runtime.box.nodes.interfaces import own_addresses

_TRY_S = 3.0
_PAUSE_S = 0.2
_LONGEST_LINE = 4096


def addresses() -> dict[str, Any]:
    """This machine's IPv4 addresses, without those that lead nowhere else, and its time `t`."""
    found = own_addresses()
    others = [one for one in found.values() if not one.startswith("127.")]
    return {"addresses": others, "t": time.time()}


def listen(port: int, nonce: str, nodes: Sequence[str], within_s: float) -> dict[str, Any]:
    """Wait for each of these nodes; by the names of those that came what became of the way back,
    and by how many seconds their clocks are ahead."""
    deadline = time.monotonic() + within_s
    back: dict[str, str | None] = {}
    ahead_s: dict[str, float] = {}
    try:
        listener = socket.create_server(("", port), backlog=len(nodes) + 4)
    except OSError as error:
        return {"problem": f"port {port} can't be listened on: {error.strerror}"}
    with listener:
        while len(back) < len(nodes) and (left_s := deadline - time.monotonic()) > 0:
            listener.settimeout(left_s)
            with suppress(OSError, ValueError, KeyError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(_TRY_S)
                    name, ahead, result = _answer(connection, nonce)
                    back[name], ahead_s[name] = result, ahead
    return {"problem": None, "back": back, "ahead_s": ahead_s}


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
            except (OSError, ValueError, KeyError) as error:
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
    except (OSError, ValueError, KeyError) as error:
        raise OSError(f"leads to {own}, which can't be reached: {_reason(error)}") from error


def _try(name: str, address: str, port: int, nonce: str) -> dict[str, Any]:
    with (
        socket.create_connection((address, port), timeout=_TRY_S) as connection,
        socket.create_server(("", 0)) as listener,
    ):
        connection.settimeout(3 * _TRY_S)
        port = listener.getsockname()[1]
        own = connection.getsockname()[0]
        said = {"node": name, "own": own, "to": address, "nonce": nonce, "port": port}
        _send(connection, {**said, "t": time.time()})
        answer = _receive(connection)
        if not hmac.compare_digest(str(answer["nonce"]), nonce[::-1]):
            raise OSError("another program answers there")
        return {"address": str(answer["address"]), "own": own, "back": answer["back"]}


def _answer(connection: socket.socket, nonce: str) -> tuple[str, float, str | None]:
    said = _receive(connection)
    if not hmac.compare_digest(str(said["nonce"]), nonce):
        raise ValueError("another program")
    ahead_s = float(said["t"]) - time.time()
    own = connection.getsockname()[0]
    if said["to"] != own:
        _send(connection, {"nonce": nonce[::-1], "address": own, "back": None})
        raise ValueError("it comes again, by this address")
    peer = str(said["own"])  # not what a translation makes of it, which its ranks don't know
    try:
        socket.create_connection((peer, int(said["port"])), timeout=_TRY_S).close()
        back = None
    except OSError as error:
        back = f"{peer}: {_reason(error)}"
    _send(connection, {"nonce": nonce[::-1], "address": own, "back": back})
    return str(said["node"]), ahead_s, back


def _send(connection: socket.socket, message: Mapping[str, object]) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


def _receive(connection: socket.socket) -> dict[str, Any]:
    with connection.makefile("rb") as stream:
        message = json.loads(stream.readline(_LONGEST_LINE))
    if not isinstance(message, dict):
        raise ValueError("not an object")
    return message


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return getattr(error, "strerror", None) or str(error)
