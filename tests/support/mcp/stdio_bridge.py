"""An HTTP endpoint in front of `trainmaster mcp` on stdin and stdout, for clients that speak HTTP.

A message goes to the process as it stands, as a line; what the process writes until it has answered
goes to the request that is open. Nothing is checked, and nothing changed but where JSON has blanks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import uvicorn
from anyio.abc import Process, TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from anyio.streams.text import TextReceiveStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

_PATIENCE_S = 120.0
_MOST_MESSAGES = 1000
_STATELESS_SINCE = "2026-07-28"
_META = "io.modelcontextprotocol/"
# The first message of a connection decides its era.
_DISCOVER = {
    "jsonrpc": "2.0",
    "id": "bridge",
    "method": "server/discover",
    "params": {
        "_meta": {
            f"{_META}protocolVersion": _STATELESS_SINCE,
            f"{_META}clientInfo": {"name": "bridge", "version": "1"},
            f"{_META}clientCapabilities": {},
        }
    },
}


class StdioServer:
    """A server's process, and the requests that it has not answered yet, by their ids."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._open: dict[str, MemoryObjectSendStream[str]] = {}
        self._answered = anyio.Condition()

    async def listen(self) -> None:
        """Pass on each line that the process writes, to its end."""
        assert self._process.stdout is not None
        rest = ""
        async for text in TextReceiveStream(self._process.stdout):
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                await self._pass_on(line)

    async def send(self, line: str) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(line.encode() + b"\n")

    async def ask(self, number: str, line: str) -> MemoryObjectReceiveStream[str]:
        """Send a request; gives what comes until its answer, which is the last."""
        sends, receives = anyio.create_memory_object_stream[str](_MOST_MESSAGES)
        async with self._answered:
            while number in self._open:  # another client's with the same id
                await self._answered.wait()
            self._open[number] = sends
        await self.send(line)
        return receives

    async def _pass_on(self, line: str) -> None:
        message = json.loads(line)
        number = None if "method" in message else json.dumps(message.get("id"))
        for each, stream in list(self._open.items()):
            if number is None or each == number:
                stream.send_nowait(line)
        if number in self._open:
            async with self._answered:
                self._open.pop(number).close()
                self._answered.notify_all()


@asynccontextmanager
async def bridged(environment: Mapping[str, str]) -> AsyncIterator[str]:
    """The URL of a server that is reached by stdin and stdout: a process for each era of the
    protocol, since a connection keeps to that of its first message."""
    async with AsyncExitStack() as processes, anyio.create_task_group() as tasks:
        handshake, stateless = [
            StdioServer(await processes.enter_async_context(_process(environment)))
            for _ in ("handshake", "stateless")
        ]
        for one in (handshake, stateless):
            tasks.start_soon(one.listen)
        async for _ in await stateless.ask(json.dumps(_DISCOVER["id"]), json.dumps(_DISCOVER)):
            pass

        async def post(request: Request) -> Response:
            is_stateless = request.headers.get("mcp-protocol-version", "") >= _STATELESS_SINCE
            return await _posted(stateless if is_stateless else handshake, await request.body())

        async with _listening(post, tasks) as url:
            yield url
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _process(environment: Mapping[str, str]) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "trainmaster", "mcp"]
    variables = {**os.environ, **environment}
    async with await anyio.open_process(command, stderr=None, env=variables) as process:
        try:
            yield process
        finally:
            process.terminate()


@asynccontextmanager
async def _listening(
    post: Callable[[Request], Awaitable[Response]], tasks: TaskGroup
) -> AsyncIterator[str]:
    routes = [Route("/mcp", post, methods=["POST"])]
    serving = uvicorn.Server(
        uvicorn.Config(Starlette(routes=routes), port=0, log_level="error", lifespan="off")
    )
    tasks.start_soon(serving.serve)
    with anyio.fail_after(_PATIENCE_S):
        while not serving.started:
            await anyio.sleep(0.01)
    port = serving.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        serving.should_exit = True


async def _posted(server: StdioServer, body: bytes) -> Response:
    message: dict[str, Any] = json.loads(body)
    line = json.dumps(message)
    if "method" not in message or "id" not in message:
        await server.send(line)
        return Response(status_code=202)
    answers = await server.ask(json.dumps(message["id"]), line)

    async def events() -> AsyncIterator[str]:
        async for answer in answers:
            yield f"event: message\ndata: {answer}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
