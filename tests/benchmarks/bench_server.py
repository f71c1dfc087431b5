"""The MCP server beside a bare one: import, and a cached answer against a no-op tool.

Prints ratios of figures that were taken in turns in the same run; nothing here passes or fails.

    python tests/benchmarks/bench_server.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from mcp import Client
from mcp.server import MCPServer
from support.runs.running_run import small_spec

from trainmaster.mcp.server import build_server
from trainmaster.runs.launch import launch
from trainmaster.runs.wait import wait_for_event
from trainmaster.sync.workspace import open_workspace

_BARE = "from mcp.server import MCPServer; MCPServer('bare')"
_OURS = "from trainmaster.mcp.server import build_server; build_server({})"
_CALLS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    compare_imports(arguments.rounds)
    asyncio.run(compare_answers())


def compare_imports(rounds: int) -> None:
    best = {"bare": 1e9, "ours": 1e9}
    for _ in range(rounds):
        for name, script in (("bare", _BARE), ("ours", _OURS)):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", script], check=True)
            best[name] = min(best[name], time.perf_counter() - started)
    ratio = best["ours"] / best["bare"]
    print(f"import: bare {best['bare']:.3f} s, ours {best['ours']:.3f} s: {ratio:.2f} x")


async def compare_answers() -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {"TRAINMASTER_HOME": str(Path(folder, "home"))}
        spec = small_spec(Path(folder), host="debug")
        with open_workspace(environment) as workspace:
            run = (await launch(workspace, spec)).run_id
            await wait_for_event(workspace, run, timeout_s=60)
            await wait_for_event(
                workspace, run, timeout_s=60
            )  # closed, so that it is not read again
        bare = MCPServer("bare")
        bare.tool()(no_op)
        nothing = await call_s(bare, "no_op", {"run_id": run})
        status = await call_s(build_server(environment), "get_run", {"run_id": run})
    ratio = status / nothing
    print(f"call: no-op {nothing * 1e3:.2f} ms, get_run {status * 1e3:.2f} ms: {ratio:.2f} x")


async def call_s(server: Any, tool: str, arguments: dict[str, Any]) -> float:
    """The median seconds of a call."""
    taken = []
    async with Client(server) as client:
        for _ in range(_CALLS):
            started = time.perf_counter()
            await client.call_tool(tool, arguments)
            taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def no_op(run_id: str) -> dict[str, str]:
    """Do nothing."""
    return {"run_id": run_id}


if __name__ == "__main__":
    main()
