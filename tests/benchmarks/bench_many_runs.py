"""What many runs cost: a tick and a server with live ones; commands and tools with ended ones.

`list_runs` and `get_run` are asked over MCP's stdio, the others by the command line. A server with
`live` runs that report and `ended` ones answers several users at once. Ended runs are compared with
few of them.

    python tests/benchmarks/bench_many_runs.py [--turns 3] [--open 50] [--closed 1000]
        [--live 200] [--ended 2000] [--before DIR]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from many_runs import home_of, unsettle
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from one_server import USERS, Load, load_of
from support.benchmarks.benchmark import Benchmark, Size, run_benchmark
from support.benchmarks.result import Goal, at_most, of_peers_time
from support.benchmarks.turns import Sample, command_processor_seconds, command_seconds

from trainmaster.home.paths import Home

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
    measure_server(bench)
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


def measure_server(bench: Benchmark) -> None:
    """One server's share of the machine, and its answers to users who call all the while."""
    live, ended = int(bench.sizes["live"]), int(bench.sizes["ended"])
    if live == 0:
        return
    folder = tempfile.TemporaryDirectory()
    with folder as place, home_of(Path(place, "home"), ended, live) as home:
        for way in ("stdio", "HTTP"):
            is_http = way == "HTTP"
            load = partial(load_of, home.root, over_http=is_http, idles=is_http)
            ours = asyncio.run(load())
            before = None
            if bench.before is not None:
                before = asyncio.run(load(tree=bench.before.resolve()))
            report_load(bench, f"{way}, {live:,} live and {ended:,} ended runs", ours, before)
        command = command_seconds([*_TRAINMASTER, "tick", "--json"], of(home.root))
        name = f"tick of {live:,} live and {ended:,} ended runs"
        bench.compare(name, "s", ours=command, turns=min(3, bench.turns))


def report_load(bench: Benchmark, place: str, ours: Load, before: Load | None) -> None:
    figures: dict[str, tuple[str, Callable[[Load], float], Goal | None]] = {
        f"calls of {USERS} users": ("s of processor", lambda load: load.round_s, None),
        "memory": ("MiB", lambda load: load.rss_mib, None),
        "threads": ("", lambda load: load.threads, at_most(12)),
        "descriptors": ("", lambda load: load.descriptors, at_most(64)),
    }
    if ours.idle_share is not None:
        figures["idle"] = ("% of a core", lambda load: load.idle_share or 0.0, at_most(5))
    for tool in ours.taken_s:
        figures[f"{tool} of {USERS} users, median"] = ("s", partial(Load.median_s, tool=tool), None)
        worst = partial(Load.worst_s, tool=tool)
        figures[f"{tool} of {USERS} users, worst"] = ("s", worst, at_most(1))
    for name, (unit, figure, goal) in figures.items():
        earlier = () if before is None else (figure(before),)
        line = f"{name}: {place}"
        bench.report(line, unit, ours=[figure(ours)], before=earlier, goal=goal)


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
    run_benchmark(
        measure,
        open=Size(50, full=400),
        closed=Size(1000, full=5000),
        live=Size(200, full=200),
        ended=Size(2000, full=2000),
    )
