"""Many connections, sessions and bodies of somebody, while others are served."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from support.attack.cases import attack_count
from support.attack.served import (
    HALF_A_REQUEST,
    HEADERS,
    ServedProcess,
    half_open_crowd,
    served_process,
    until,
)
from support.mcp.http_server import BEGIN, settings, token_for
from support.session.tiers import at_length

from trainmaster.mcp.http.quotas import MOST_OF_A_BODY

pytestmark = [pytest.mark.attack, pytest.mark.slow]

# What an interpreter keeps of memory that was in use once.
_MOST_MORE_MIB = 48
_ENDS_WITHIN_S = 5.0


@pytest.fixture
def served(home: Path, tmp_path: Path) -> Iterator[tuple[ServedProcess, str, str]]:
    """A server, and the tokens of one who means harm and of another user."""
    settings(home, "server: {requests_per_minute: 1000000}\n")
    environment = {"TRAINMASTER_HOME": str(home)}
    harming, other = (token_for(environment, name, "read") for name in ("mal", "ann"))
    with served_process(["mcp", "--http", "--port", "0"], environment, tmp_path) as one:
        for _ in range(3):  # what the first calls import counts for no crowd
            one.overview_s(other)
        yield one, harming, other


def ends_as_it_began(served: ServedProcess, other: str, began: tuple[int, float]) -> None:
    """Its descriptors and memory are those of before, and it still serves and ends."""
    until(lambda: served.descriptors() <= began[0] + 4)
    served.overview_s(other)
    print(f"memory {began[1]:.0f} → {served.memory_mib():.0f} MiB, descriptors {began[0]}", end="")
    print(f" → {served.descriptors()}")
    assert served.memory_mib() <= began[1] + _MOST_MORE_MIB
    assert served.ended_s() <= _ENDS_WITHIN_S


@pytest.mark.long
def test_others_are_served_beside_half_open_connections(
    served: tuple[ServedProcess, str, str],
) -> None:
    """1,500 by default, beyond the server's descriptors; 15,000 of them with `make test-attack`."""
    one, _, other = served
    began = one.descriptors(), one.memory_mib()
    with (
        one.overviews_meanwhile(other) as waits_s,
        half_open_crowd(one.port, attack_count(1500), HALF_A_REQUEST),
    ):
        for _ in range(10):
            one.overview_s(other)
        assert one.descriptors() < 800
    assert waits_s
    ends_as_it_began(one, other, began)
    assert len(one.log.read_text().splitlines()) < 200


_ASKING = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
_COSTLY = {
    "chunks": _ASKING + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 43_000,
    "requests": (_ASKING + b"\r\n") * 3000,
    "garbage": bytes(range(256)) * 1000,
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "shows_token"),
    [
        ("requests", True),
        *at_length(
            ("requests", False),
            *((kind, shows) for kind in ("chunks", "garbage") for shows in (False, True)),
        ),
    ],
)
def test_what_costs_more_to_parse_than_to_send_holds_up_no_other(
    served: tuple[ServedProcess, str, str], kind: str, shows_token: bool
) -> None:
    one, harming, other = served
    began = one.descriptors(), one.memory_mib()
    text = _COSTLY[kind].replace(b"%b", harming.encode() if shows_token else b"tmk_unknown")
    with ExitStack() as held:
        for _ in range(attack_count(100)):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", one.port)))
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(text)
        for _ in range(5):
            one.overview_s(other)
    ends_as_it_began(one, other, began)


def test_what_a_session_keeps_of_its_client_is_bounded(
    served: tuple[ServedProcess, str, str],
) -> None:
    """A request of 1 MiB can be 30 MiB of objects, for as long as the session is open."""
    one, harming, other = served
    began = one.descriptors(), one.memory_mib()
    params = {**BEGIN["params"], "capabilities": {"experimental": {"x": {"y": [{}] * 300_000}}}}
    with httpx.Client(headers=HEADERS, timeout=60) as http:
        text = json.dumps({**BEGIN, "params": params})
        for _ in range(16):
            answer = http.post(
                one.url, content=text, headers={"Authorization": f"Bearer {harming}"}
            )
            assert answer.status_code == 413
    ends_as_it_began(one, other, began)


def test_one_users_sessions_are_bounded_and_cost_others_none(
    served: tuple[ServedProcess, str, str],
) -> None:
    one, harming, other = served
    began = one.descriptors(), one.memory_mib()
    count = attack_count(100)
    with httpx.Client(headers=HEADERS, timeout=60) as http:
        mine = one.open_session(http, other)
        codes = {one.open_session(http, harming).status_code for _ in range(count)}
        assert codes <= {200, 429}
        one.overview_s(other)
        assert one.open_session(http, other).status_code == 200
        again = {"mcp-session-id": mine.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        held = http.post(
            one.url, json=listing, headers={**again, "Authorization": f"Bearer {other}"}
        )
        assert held.status_code == 200  # another's session was not ended for them
    ends_as_it_began(one, other, began)
    assert mine.headers["mcp-session-id"] not in one.log.read_text()


def test_one_users_unfinished_bodies_and_streams_are_bounded(
    served: tuple[ServedProcess, str, str],
) -> None:
    one, harming, other = served
    began = one.descriptors(), one.memory_mib()
    head = (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {harming}\r\n"
        f"Content-Length: {MOST_OF_A_BODY}\r\n\r\n"
    ).encode()
    held: list[socket.socket] = []
    try:
        for _ in range(attack_count(100)):
            connection = socket.create_connection(("127.0.0.1", one.port), timeout=20)
            held.append(connection)
            try:
                connection.sendall(head)
                connection.sendall(b" " * (MOST_OF_A_BODY - 1))
            except OSError:  # refused meanwhile
                continue
        one.overview_s(other)
        most = one.memory_mib()
        print(f"memory with the bodies: {began[1]:.0f} → {most:.0f} MiB")
        assert most <= began[1] + _MOST_MORE_MIB
    finally:
        for connection in held:
            connection.close()
    ends_as_it_began(one, other, began)
