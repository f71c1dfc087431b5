"""What one user may have under way over HTTP: sessions with streams, requests, bodies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.types import Message
from support.attack.served import HEADERS
from support.mcp.http_server import BEGIN, answered, serving, settings, token_for

from trainmaster.mcp.http.authentication import Identity, Principal
from trainmaster.mcp.http.quotas import (
    MOST_BODY_BYTES,
    MOST_BODY_BYTES_IN_ALL,
    MOST_OF_A_BODY,
    Quotas,
)
from trainmaster.mcp.http.refusal import Refusal

pytestmark = pytest.mark.attack

# What docs/server.md promises of a user: written out, so that a limit that is lost fails a test
# instead of making it longer.
_SESSIONS, _REQUESTS = 32, 64
_PATIENCE_S = 45.0
_LISTING = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


@pytest.fixture
def environment(home: Path) -> Iterator[dict[str, str]]:
    settings(home, "server: {requests_per_minute: 1000000}\n")
    yield {"TRAINMASTER_HOME": str(home)}


def _run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Within a bound, whatever the server keeps waiting."""

    async def bounded() -> None:
        with anyio.fail_after(_PATIENCE_S):
            await scenario()

    anyio.run(bounded)


def test_the_oldest_idle_of_ones_own_sessions_ends_for_a_new_one(
    environment: dict[str, str],
) -> None:
    ann, ben = (token_for(environment, name, "read") for name in ("ann", "ben"))

    async def scenario() -> None:
        async with serving(environment) as url, httpx.AsyncClient(timeout=60) as http:

            async def ask(token: str, message: object, session: str = "") -> httpx.Response:
                headers = {**HEADERS, "Authorization": f"Bearer {token}"}
                if session:
                    headers["mcp-session-id"] = session
                return await http.post(url, json=message, headers=headers)

            others = (await ask(ben, BEGIN)).headers["mcp-session-id"]
            sessions = [
                (await ask(ann, BEGIN)).headers["mcp-session-id"] for _ in range(_SESSIONS + 2)
            ]
            codes = [(await ask(ann, _LISTING, one)).status_code for one in sessions]
            assert codes == [404, 404] + [200] * _SESSIONS
            assert (await ask(ben, _LISTING, others)).status_code == 200

    _run(scenario)


def test_one_users_streams_are_bounded_and_another_user_has_theirs(
    environment: dict[str, str],
) -> None:
    """Those that are open keep their sessions: a new one of the same user waits."""
    ann, ben = (token_for(environment, name, "read") for name in ("ann", "ben"))

    async def scenario() -> None:
        async with serving(environment) as url, httpx.AsyncClient(timeout=60) as http:

            async def stream(kept: ExitStack, token: str) -> int:
                headers = {**HEADERS, "Authorization": f"Bearer {token}"}
                opened = await http.post(url, json=BEGIN, headers=headers)
                if opened.status_code != 200:
                    return opened.status_code
                headers["mcp-session-id"] = opened.headers["mcp-session-id"]
                lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                connection = kept.enter_context(socket.socket())
                connection.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(connection, ("127.0.0.1", httpx.URL(url).port))
                text = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n"
                await loop.sock_sendall(connection, text.encode())
                return int((await loop.sock_recv(connection, 100)).split()[1])

            with ExitStack() as kept:
                codes = [await stream(kept, ann) for _ in range(_SESSIONS + 2)]
                assert codes == [200] * _SESSIONS + [429, 429]
                assert await stream(kept, ben) == 200

    _run(scenario)


def test_one_users_requests_are_bounded_and_another_user_has_theirs(
    environment: dict[str, str],
) -> None:
    """Each of them is asked for its body, which never comes, and needs no session."""
    ann, ben = (token_for(environment, name, "read") for name in ("ann", "ben"))

    async def scenario() -> None:
        async with serving(environment) as url, anyio.create_task_group() as tasks:
            codes: list[int] = []

            async def begin(token: str) -> None:
                async with await anyio.connect_tcp("127.0.0.1", httpx.URL(url).port or 0) as stream:
                    sent = {**HEADERS, "Authorization": f"Bearer {token}", "Content-Length": "10"}
                    sent |= {"mcp-protocol-version": "2026-07-28", "Expect": "100-continue"}
                    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
                    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n"
                    await stream.send(head.encode())
                    codes.append(int((await stream.receive()).split()[1]))
                    await anyio.sleep_forever()

            for _ in range(_REQUESTS + 5):
                tasks.start_soon(begin, ann)
            while len(codes) < _REQUESTS + 5:
                await anyio.sleep(0.01)
            assert sorted(codes) == [100] * _REQUESTS + [429] * 5
            assert (await answered(url, ben)).status_code == 200
            tasks.cancel_scope.cancel()

    _run(scenario)


def test_one_users_unfinished_bodies_are_bounded(environment: dict[str, str]) -> None:
    token = token_for(environment, "ann", "read")
    size = MOST_OF_A_BODY

    async def scenario() -> None:
        async with serving(environment) as url:
            refused = 0

            async def send() -> None:
                nonlocal refused
                stream = await anyio.connect_tcp("127.0.0.1", httpx.URL(url).port or 0)
                async with stream:
                    lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
                    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}"
                    head += f"Authorization: Bearer {token}\r\nContent-Length: {size}\r\n\r\n"
                    answer = b""
                    try:
                        await stream.send(head.encode())
                        await stream.send(b" " * (size - 1))
                        with anyio.move_on_after(10):
                            answer = await stream.receive()
                    except (anyio.BrokenResourceError, anyio.EndOfStream):
                        refused += 1
                        return
                    refused += answer.startswith(b"HTTP/1.1 429")

            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(send)
            assert refused >= 10 - MOST_BODY_BYTES // size

    _run(scenario)


def test_all_users_bodies_together_are_bounded() -> None:
    """Each is within the share of one user."""
    size = 4 << 20
    quotas = Quotas()
    fitting = MOST_BODY_BYTES_IN_ALL // size

    async def receive() -> Message:
        return {"type": "http.request", "body": b" " * size, "more_body": True}

    async def scenario() -> None:
        with ExitStack() as under_way:
            for number in range(fitting + 1):
                one = Identity(Principal(None, "token", str(number)), f"user{number}", "read")
                read = under_way.enter_context(quotas.request(one, receive))
                if number < fitting:
                    await read()
            with pytest.raises(Refusal) as refused:
                await read()
            assert refused.value.response().status_code == 503
        with quotas.request(one, receive) as read:  # what has ended counts no more
            await read()

    _run(scenario)
