"""What many runs cost: a tick with open ones; commands and tools with ended ones, beside few.

`list_runs` and `get_run` are asked over MCP's stdio, the others by the command line.

    python tests/benchmarks/bench_many_runs.py [--turns 3] [--open 50] [--closed 1000]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from many_runs import home_of, unsettle
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import Goal, at_most, of_peers_time
from support.benchmarks.turns import Sample, command_processor_seconds, command_seconds

from trainmaster.words.paths import Home

_CALLS, _FEW = 20, 10
_TRAINMASTER = [sys.executable, "-m", "trainmaster"]
_FLAT = of_peers_time(1.5)
_COMMANDS: dict[str, tuple[list[str], Goal]] = {
    "runs": (["runs"], _FLAT),
    "runs --state failed": (["runs", "--state", "failed"], _FLAT),
    "tick": (["tick"], _FLAT),
    "status": (["status", "small"], at_most(0.15)),
    "--help": (["--help"], at_most(0.15)),
}


def measure(bench: Benchmark) -> None:
    opened, closed = int(bench.sizes["open"]), int(bench.sizes["closed"])
    with tempfile.TemporaryDirectory() as folder, home_of(Path(folder, "home"), 1, opened) as home:
        name = f"tick of {opened} open runs"
        tick = command_seconds([*_TRAINMASTER, "tick", "--json"], of(home.root))
        bench.compare(name, "s", ours=tick, turns=min(3, bench.turns))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        few = stack.enter_context(home_of(Path(folder, "few"), _FEW, 0))
        many = stack.enter_context(home_of(Path(folder, "many"), closed, 0))
        bench.compare(
            f"first tick of an older version's {closed:,} ended runs",
            "s of processor",
            ours=unsettled(many, ["tick"]),
            peer=(f"{_FEW} runs", unsettled(few, ["tick"])),
            goal=_FLAT,
        )
        for home in (few, many):
            processor(home.root, ["runs", "--state", "failed"])()  # works out how they ended, once
        for name, (arguments, goal) in _COMMANDS.items():
            bench.compare(
                f"{name}, {closed:,} ended runs",
                "s of processor",
                ours=processor(many.root, arguments),
                peer=(f"{_FEW} runs", processor(few.root, arguments)),
                goal=goal,
            )
        for tool, given in (("list_runs", {}), ("get_run", {"run_id": "small"})):
            bench.compare(
                f"{tool}, {closed:,} ended runs",
                "ms",
                ours=answered(many.root, tool, given),
                peer=(f"{_FEW} runs", answered(few.root, tool, given)),
                goal=_FLAT,
                turns=min(3, bench.turns),
            )


def of(home: Path) -> dict[str, str]:
    return {"TRAINMASTER_HOME": str(home)}


def processor(home: Path, arguments: list[str]) -> Sample:
    return command_processor_seconds([*_TRAINMASTER, *arguments], of(home))


def unsettled(home: Home, arguments: list[str]) -> Sample:
    """The same, each time of runs that were not examined yet."""
    sample = processor(home.root, arguments)

    def first() -> float:
        unsettle(home)
        return sample()

    return first


def answered(home: Path, tool: str, arguments: dict[str, str]) -> Sample:
    """The median milliseconds of a call to a server of its own."""
    return lambda: 1e3 * asyncio.run(call_s([*_TRAINMASTER, "mcp"], of(home), tool, arguments))


async def call_s(
    command: list[str], environment: dict[str, str], tool: str, arguments: dict[str, str]
) -> float:
    """The median seconds of a call to the server that the command starts."""
    server = StdioServerParameters(
        command=command[0], args=command[1:], env={**os.environ, **environment}
    )
    taken = []
    async with Client(stdio_client(server)) as client:
        for _ in range(_CALLS):
            started = time.perf_counter()
            answer = await client.call_tool(tool, arguments)
            taken.append(time.perf_counter() - started)
            assert not answer.is_error
    return statistics.median(taken)


if __name__ == "__main__":
    run_benchmark(measure, open=Size(50, full=400), closed=Size(1000, full=5000))
