"""The MCP server beside a bare one, both over stdio: import, and answers beside a no-op tool.

The home holds a training that runs and many closed runs.

    python tests/benchmarks/bench_server.py [--turns 5] [--runs 1000] [--calls 40]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from many_runs import home_of
from mcp import Client, StdioServerParameters
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import Goal, of_peers_time
from support.benchmarks.turns import command_seconds
from support.runs.running_run import kill_processes, pace, small_spec

from trainmaster.runs.events.wait import wait_for_event
from trainmaster.runs.launch.launch import launch
from trainmaster.sync.workspace import open_workspace

_IMPORT = "from mcp.server import MCPServer; MCPServer('bare')"
_OUR_IMPORT = "from trainmaster.mcp.server import build_server; build_server({})"
_BARE = """
from mcp.server import MCPServer
bare = MCPServer("bare")
@bare.tool()
def no_op(run_id: str = "") -> dict[str, str]:
    return {"run_id": run_id}
bare.run("stdio")
"""
_OURS = "from trainmaster.cli import main; main()"
_PEER = "a no-op"


def measure(bench: Benchmark) -> None:
    bench.compare(
        "import of the server",
        "s",
        ours=command_seconds([sys.executable, "-c", _OUR_IMPORT]),
        peer=("a bare server", command_seconds([sys.executable, "-c", _IMPORT])),
        goal=of_peers_time(1.3),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        home_of(Path(folder, "home"), int(bench.sizes["runs"]), 0) as home,
    ):
        try:
            asyncio.run(compare_answers(bench, home.root, Path(folder, "live")))
        finally:
            kill_processes(home.local_root)


async def compare_answers(bench: Benchmark, home: Path, folder: Path) -> None:
    folder.mkdir()
    environment = {"TRAINMASTER_HOME": str(home)}
    spec = small_spec(folder, name="live", steps="100000", env=pace(folder))
    with open_workspace(environment) as workspace:
        live = (await launch(workspace, spec)).run_id
        await wait_for_event(workspace, live, until=["step:50"], timeout_s=120)
    calls = {
        "get_run of a live run": ("get_run", {"run_id": live}, of_peers_time(3)),
        "query_metrics of a live run": ("query_metrics", {"run_id": live}, of_peers_time(3)),
        "get_run of a closed run": ("get_run", {"run_id": "small"}, of_peers_time(3)),
        f"list_runs of {bench.sizes['runs']:,.0f}": ("list_runs", {}, None),
    }
    async with AsyncExitStack() as stack:
        bare = await stack.enter_async_context(served(["-c", _BARE], {}))
        ours = await stack.enter_async_context(served(["-c", _OURS, "mcp"], environment))
        for name, (tool, arguments, goal) in calls.items():
            await compare(bench, name, (bare, ours), (tool, arguments, goal))


def served(arguments: list[str], environment: Mapping[str, str]) -> Client:
    """A client of a server that is a child process."""
    whole = {**os.environ, **environment}
    return Client(StdioServerParameters(command=sys.executable, args=arguments, env=whole))


async def compare(
    bench: Benchmark,
    name: str,
    servers: tuple[Client, Client],
    call: tuple[str, dict[str, object], Goal | None],
) -> None:
    (bare, ours), (tool, arguments, goal) = servers, call
    count = int(bench.sizes["calls"])
    peers, own = [], []
    for _ in range(bench.turns):
        peers.append(await call_ms(bare, "no_op", {"run_id": "x"}, count))
        own.append(await call_ms(ours, tool, arguments, count))
    bench.report(name, "ms", ours=own, peer=(_PEER, peers), goal=goal)


async def call_ms(client: Client, tool: str, arguments: dict[str, object], count: int) -> float:
    """The median milliseconds of a call."""
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        answer = await client.call_tool(tool, arguments)
        taken.append(1e3 * (time.perf_counter() - started))
        assert not answer.is_error, answer.content
    return statistics.median(taken)


if __name__ == "__main__":
    run_benchmark(measure, runs=Size(1000, full=5000), calls=Size(40, full=200))
