"""What one MCP server takes of its machine for a home of many live runs, and how soon it answers
several users at once, over stdio or HTTP."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from support.benchmarks.turns import processor_s
from support.mcp.http_server import client_of, token_for

USERS = 4
_CALLS = {"overview": {}, "list_runs": {}, "get_run": {"run_id": "open-7"}}
_ROUNDS = 10
# What a server does once, or every few minutes, is over.
_SETTLES_S = 12.0
# More than two rounds of its maintenance.
IDLE_S = 32.0
_MCP = ("-m", "trainmaster", "mcp")


@dataclass
class Load:
    """`taken_s`: of each call, by tool; `round_s`: processor time of one of each by every user; the
    rest as it is once the users are silent."""

    taken_s: dict[str, list[float]] = field(default_factory=dict)
    round_s: float = 0.0
    rss_mib: float = 0.0
    threads: float = 0.0
    descriptors: float = 0.0
    idle_share: float | None = None

    def worst_s(self, tool: str) -> float:
        return max(self.taken_s[tool])

    def median_s(self, tool: str) -> float:
        return statistics.median(self.taken_s[tool])


async def load_of(
    home: Path, *, over_http: bool, idles: bool = True, tree: Path | None = None
) -> Load:
    """Of a server of its own; `tree`: of an earlier checkout. `idles`: also what it takes once its
    users are silent, which is the same over stdio and HTTP."""
    environment = {**os.environ, "TRAINMASTER_HOME": str(home)}
    if tree is not None:
        environment["PYTHONPATH"] = f"{tree / 'server'}{os.pathsep}{tree}"
    serve = _over_http if over_http else _over_stdio
    load = Load()
    async with serve(environment) as (pid, users):
        await users[0].call_tool("overview", {})  # opens the home, and begins its maintenance
        before_s = processor_s(pid)
        await asyncio.gather(*(_user(user, load) for user in users))
        load.round_s = (processor_s(pid) - before_s) / _ROUNDS
        if idles:
            await asyncio.sleep(_SETTLES_S)
            before_s, began = processor_s(pid), time.monotonic()
            await asyncio.sleep(IDLE_S)
            load.idle_share = 100 * (processor_s(pid) - before_s) / (time.monotonic() - began)
        status = Path(f"/proc/{pid}/status").read_text().split("\n")
        rows = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        load.rss_mib = int(rows["VmRSS"].split()[0]) / 1024
        load.threads = int(rows["Threads"])
        load.descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return load


async def _user(client: Client, load: Load) -> None:
    for _ in range(_ROUNDS):
        for tool, arguments in _CALLS.items():
            started = time.perf_counter()
            answer = await client.call_tool(tool, dict(arguments))
            load.taken_s.setdefault(tool, []).append(time.perf_counter() - started)
            assert not answer.is_error, answer.content


@asynccontextmanager
async def _over_stdio(environment: dict[str, str]) -> AsyncIterator[tuple[int, Sequence[Client]]]:
    """One client, whose calls come as those of several users would."""
    before = _children()
    server = StdioServerParameters(command=sys.executable, args=[*_MCP], env=environment)
    async with Client(stdio_client(server)) as client:
        (pid,) = _children() - before
        yield pid, [client] * USERS


@asynccontextmanager
async def _over_http(environment: dict[str, str]) -> AsyncIterator[tuple[int, Sequence[Client]]]:
    tokens = [
        token_for(environment, f"user{number}-{time.time_ns()}", "operate")
        for number in range(USERS)
    ]
    served = await asyncio.create_subprocess_exec(
        sys.executable, *_MCP, "--http", "--port", "0",
        env=environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert served.stdout is not None
    try:
        url = (await served.stdout.readline()).split()[-1].decode()
        async with AsyncExitStack() as stack:
            users = []
            for token in tokens:
                users.append(await stack.enter_async_context(client_of(url, token)))
            yield served.pid, users
    finally:
        served.terminate()
        await served.wait()


def _children() -> set[int]:
    pid = os.getpid()
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
