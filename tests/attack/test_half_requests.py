"""Requests that never end, or are none: the server lives, and serves others meanwhile."""

from __future__ import annotations

import errno
import os
import random
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio
import httpx
import pytest
from anyio.abc import ByteStream
from starlette.types import Receive, Scope, Send
from support.attack.cases import attack_count, attack_random
from support.attack.served import HEADERS, ServedProcess, half_open_crowd, served_process, until
from support.board.planted_board import plant_board
from support.mcp.certificates import self_made_certificate
from support.mcp.http_server import BEGIN, token_for

from trainmaster.serving.connections import DEADLINES_S, Connection, Connections, Wait
from trainmaster.serving.listening import listen
from trainmaster.serving.protocol import admit_connection
from trainmaster.serving.server import LimitedServer, Lobby
from trainmaster.sync.workspace import open_workspace

pytestmark = pytest.mark.attack
_PATIENCE_S = 30.0
_HANDSHAKE_S = 10.0  # that a client has
_PAUSE_S = 0.2  # of a listener without descriptors
# A ClientHello of 512 bytes, without most of them.
_HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)
_TARGETS = ("/mcp", "/mcp/", "/", "*", "http://evil.example/mcp", "/%2e%2e/mcp", "/" + "x" * 20_000)
_HEADERS = (
    "Host: 127.0.0.1",
    "Host: evil.example",
    "Content-Length: 10000000",
    "Content-Length: -1",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Expect: 100-continue",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Upgrade: h2c",
    "Authorization: Bearer tmk_unknown",
    "Authorization: Bearer \xff\xfe",
    "X: " + "y" * 70_000,
    " folded: x",
    "X-Forwarded-For: 1.2.3.4",
)
_BODIES = ("", "5\r\nhello\r\n", "fffffff\r\n", "{}", "x" * 100_000, "GET /mcp HTTP/1.1\r\n\r\n")


def half_request(chance: random.Random) -> bytes:
    """Something like a request: cut, odd, or none at all."""
    kind = chance.random()
    if kind < 0.15:
        return chance.randbytes(chance.randrange(1, 3000))
    if kind < 0.25:  # the beginning of TLS
        return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(200)
    method = chance.choice(["GET", "POST", "DELETE", "OPTIONS", "PRI", "G\x00T", "x" * 500])
    version = chance.choice(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", ""])
    lines = [f"{method} {chance.choice(_TARGETS)} {version}"]
    lines += chance.choices(_HEADERS, k=chance.randrange(6))
    text = "\r\n".join(lines) + chance.choice(["", "\r\n", "\r\n\r\n", "\n\n"])
    whole = (text + chance.choice(_BODIES)) * chance.choice([1, 1, 1, 5])
    data = whole.encode("latin-1")
    return data[: chance.randrange(1, len(data) + 1)] if chance.random() < 0.5 else data


@pytest.fixture
def served(home: Path, tmp_path: Path) -> Iterator[tuple[ServedProcess, str]]:
    environment = {"TRAINMASTER_HOME": str(home)}
    token = token_for(environment, "ann", "read")
    with served_process(["mcp", "--http", "--port", "0"], environment, tmp_path, 256) as one:
        yield one, token


def test_no_half_request_stops_the_server_or_keeps_a_descriptor(
    served: tuple[ServedProcess, str],
) -> None:
    one, token = served
    one.overview_s(token)
    began, chance = one.descriptors(), attack_random("half requests")
    with ExitStack() as held:
        for _ in range(attack_count(300)):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", one.port)))
            connection.setblocking(False)
            try:
                connection.send(half_request(chance))
            except OSError:
                continue
        one.overview_s(token)
        assert one.descriptors() < 200
        # Most still wait, but none for longer than its deadline.
        until(lambda: one.descriptors() <= began + 4, max(DEADLINES_S.values()) + _PATIENCE_S)
    one.overview_s(token)
    assert "Traceback" not in one.log.read_text()


@pytest.mark.long
def test_a_header_has_a_deadline_that_no_byte_moves(
    served: tuple[ServedProcess, str],
) -> None:
    one, _ = served
    connection = socket.create_connection(("127.0.0.1", one.port))
    connection.settimeout(0.2)
    connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
    answer = b""

    def is_answered() -> bool:
        nonlocal answer
        try:
            connection.sendall(b"x")
            answer += connection.recv(1000)
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    until(is_answered, DEADLINES_S["header"] + _PATIENCE_S)
    assert not answer or answer.startswith(b"HTTP/1.1 408 ")


def test_a_body_has_a_deadline_that_neither_a_byte_nor_a_token_moves() -> None:
    """Also of a request that was admitted; its answer has none."""
    deadlines_s: dict[Wait, float] = {**DEADLINES_S, "body": 1.0, "answer": 1.0}
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        admit_connection(scope)
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def ended_s(stream: ByteStream, sent: bytes) -> float:
        began = anyio.current_time()
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            while True:
                await stream.send(sent)
                with anyio.move_on_after(0.05):
                    await stream.receive()
        return anyio.current_time() - began

    async def scenario() -> None:
        server = LimitedServer(app, grace_s=1, deadlines_s=deadlines_s)
        with listen("127.0.0.1", 0) as listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                port = listener.getsockname()[1]
                answered = await anyio.connect_tcp("127.0.0.1", port)
                await answered.send(head + b"x" * 1000)
                slow = await anyio.connect_tcp("127.0.0.1", port)
                await slow.send(head)
                with anyio.fail_after(_PATIENCE_S):
                    assert await ended_s(slow, b"x") >= deadlines_s["body"] / 2
                assert len(server.limited) == 1
                await answered.aclose()
                server.should_exit = True

    anyio.run(scenario)


_SHORT = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
_CHUNKED = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("is_admitted", [False, True])
@pytest.mark.parametrize("request_", [_SHORT * 3, _CHUNKED], ids=["three", "endless body"])
def test_an_answer_to_who_shows_no_token_is_the_last_on_its_connection(
    request_: bytes, is_admitted: bool
) -> None:
    """It arrives, although its client continues to send."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if is_admitted:
            admit_connection(scope)
        while is_admitted and (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"answer"})

    async def scenario() -> bytes:
        server, received = LimitedServer(app, grace_s=1), b""
        with listen("127.0.0.1", 0) as listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                port = listener.getsockname()[1]
                async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                    await stream.send(request_)
                    if request_ is _CHUNKED:
                        for _ in range(20):
                            await stream.send(b"1\r\nx\r\n" * 4000)
                        await stream.send(b"0\r\n\r\n")
                    with suppress(anyio.EndOfStream), anyio.fail_after(_PATIENCE_S):
                        while received.count(b"answer") < (3 if is_admitted else 4):
                            received += await stream.receive()
                            if is_admitted and request_ is _CHUNKED and b"answer" in received:
                                break
                server.should_exit = True
        return received

    received = anyio.run(scenario)
    expected = 3 if is_admitted and request_ is not _CHUNKED else 1
    assert received.count(b"answer") == expected
    assert (b"connection: close" in received) != is_admitted


def test_half_handshakes_of_tls_are_counted_end_and_keep_nobody_out(
    home: Path, tmp_path: Path
) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}
    token = token_for(environment, "ann", "read")
    certificate, key = self_made_certificate(tmp_path)
    words = ["mcp", "--http", "--port", "0", "--certificate", str(certificate), "--key", str(key)]
    trusting = ssl.create_default_context(cafile=str(certificate))
    headers = {**HEADERS, "Authorization": f"Bearer {token}"}

    def is_served(one: ServedProcess) -> bool:
        with httpx.Client(verify=trusting, timeout=20) as http:
            return http.post(one.url, json=BEGIN, headers=headers).status_code == 200

    with served_process(words, environment, tmp_path, 256) as one, ExitStack() as held:
        assert is_served(one)
        began = one.descriptors()
        for number in range(attack_count(300)):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", one.port)))
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(_HALF_HELLO[: 1 + number % len(_HALF_HELLO)])
            if number % 50 == 0:
                assert is_served(one)
        assert is_served(one)
        assert began + 20 < one.descriptors() < 200
        until(lambda: one.descriptors() <= began + 4, DEADLINES_S["header"] + _PATIENCE_S)
        assert is_served(one)
        assert "Traceback" not in one.log.read_text()


def test_a_half_handshake_gives_way_as_soon_as_room_is_needed(tmp_path: Path) -> None:
    """Before any deadline: of two that begin TLS the older ends where a third connects."""
    certificate, key = self_made_certificate(tmp_path)
    none_s: dict[Wait, float] = dict.fromkeys(DEADLINES_S, 600.0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("nothing is asked")

    async def half(port: int) -> ByteStream:
        stream = await anyio.connect_tcp("127.0.0.1", port)
        await stream.send(_HALF_HELLO)
        return stream

    async def scenario() -> None:
        files = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
        server = LimitedServer(app, grace_s=1, most=2, deadlines_s=none_s, **files)
        server.config.load()
        with listen("127.0.0.1", 0) as listener:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listener])
                port = listener.getsockname()[1]
                oldest = await half(port)
                others = [await half(port) for _ in range(2)]
                with anyio.fail_after(_HANDSHAKE_S / 2), pytest.raises(anyio.EndOfStream):
                    await oldest.receive()
                for stream in (oldest, *others):
                    await stream.aclose()
                server.should_exit = True

    anyio.run(scenario)


class _WithoutDescriptors(socket.socket):
    """A listening socket whose process has none left for a while, as the kernel reports it."""

    fails = 3
    tries = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.tries += 1
        if self.tries <= self.fails:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_a_listener_without_descriptors_pauses_and_continues() -> None:
    """It does not try again at each turn of the loop, and ends what is unauthenticated."""
    taken: list[Connection] = []

    async def scenario() -> None:
        limited = Connections(4)
        ours, theirs = socket.socketpair()
        with _WithoutDescriptors() as listener, theirs:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            waiting = limited.accepted(ours, "10.0.0.1")
            assert waiting is not None
            lobby = Lobby(listener, limited, taken.append, is_tls=False)
            with socket.create_connection(listener.getsockname()) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                began, turns = anyio.current_time(), 0
                with anyio.fail_after(_PATIENCE_S):
                    while not taken:
                        await anyio.sleep(0)
                        turns += 1
                        tries = 1 + (anyio.current_time() - began) / _PAUSE_S
                        assert listener.tries <= tries + 1
                assert turns > listener.tries > listener.fails
                assert waiting.fileno() == -1
                lobby.close()
                taken[0].close()

    anyio.run(scenario)


def test_newest_connections_are_held_and_the_largest_holder_gives_way() -> None:
    """By address; those who have shown a token go last, and a proxy's too."""

    async def scenario() -> None:
        with ExitStack() as kept:
            limited = Connections(4)

            def one(address: str) -> object:
                ours, theirs = socket.socketpair()
                kept.enter_context(theirs)
                return limited.accepted(ours, address)

            quiet = one("10.0.0.1")
            crowd = [one("10.0.0.2") for _ in range(10)]
            assert len(limited) == 4
            assert quiet.fileno() != -1  # type: ignore[attr-defined]
            assert [each.fileno() == -1 for each in crowd] == [True] * 7 + [False] * 3  # type: ignore[attr-defined]
            crowd[-1].admit()  # type: ignore[attr-defined]
            last = [one("10.0.0.3") for _ in range(10)][-1]
            assert crowd[-1].fileno() != -1  # type: ignore[attr-defined]
            assert last.fileno() != -1  # type: ignore[attr-defined]
            limited.end_unauthenticated()
            crowd[-1].close()  # type: ignore[attr-defined]
            assert len(limited) == 0

    anyio.run(scenario)


@pytest.mark.long
def test_the_boards_owner_is_served_beside_half_open_connections(
    home: Path, tmp_path: Path
) -> None:
    environment = {"TRAINMASTER_HOME": str(home)}
    with open_workspace(environment) as workspace:
        plant_board(workspace)
    with served_process(["board"], environment, tmp_path) as one:
        address, _, token = one.url.partition("/#token=")
        headers = {"Authorization": f"Bearer {token}"}
        with half_open_crowd(one.port, attack_count(300), b"GET / HTTP/1.1\r\nHost: "):
            for _ in range(10):
                page = httpx.get(address, timeout=5)
                answer = httpx.get(f"{address}/api/board", headers=headers, timeout=20)
                assert (page.status_code, answer.status_code) == (200, 200)
            assert one.descriptors() < 300
        assert one.ended_s() <= 5.0


def test_a_server_without_descriptors_lives_and_serves_again(home: Path, tmp_path: Path) -> None:
    """Its own limit is lowered while connections are open, so that accepting itself fails."""
    environment = {"TRAINMASTER_HOME": str(home)}
    token = token_for(environment, "ann", "operate")
    with served_process(["mcp", "--http", "--port", "0"], environment, tmp_path) as one:
        one.overview_s(token)
        used, limits = one.descriptors(), (1024, 1024)
        resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, (used + 5, 1024))
        with ExitStack() as held:
            for _ in range(60):
                connection = socket.create_connection(("127.0.0.1", one.port))
                held.enter_context(connection).sendall(b"GET /mcp HTTP/1.1\r\nHost: ")
            until(lambda: "No connection can be accepted" in one.log.read_text())
        resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, limits)
        until(lambda: one.overview_s(token) < 5)
        assert one.process.poll() is None
        assert one.ended_s() <= 5.0
