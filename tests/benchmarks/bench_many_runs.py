"""What many runs cost: a tick with open ones, and `runs`, `status` and `tick` with ended ones.

Prints seconds, processor seconds, and the ratio to a home with few runs; nothing here passes or
fails. `list_runs` and `get_run` are asked over MCP's stdio, the others by the command line.

    python tests/benchmarks/bench_many_runs.py [--open 50,200,400] [--closed 10,1000,5000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from many_runs import home_of
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from trainmaster.words.paths import Home

_CALLS = 20
_TRAINMASTER = [sys.executable, "-m", "trainmaster"]
_COMMANDS = {
    "tick": ["tick"],
    "runs": ["runs"],
    "runs --state failed": ["runs", "--state", "failed"],
    "status": ["status", "small"],
    "--help": ["--help"],
}


@dataclass(frozen=True)
class Spent:
    """What a command took; `processor_s` of it and all that it started."""

    seconds: float
    processor_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--open", default="50,200,400", dest="opened")
    parser.add_argument("--closed", default="10,1000,5000")
    arguments = parser.parse_args()
    for count in map(int, filter(None, arguments.opened.split(","))):
        within(1, count, compare_ticks)
    first: dict[str, float] = {}
    for count in map(int, filter(None, arguments.closed.split(","))):
        within(count, 0, lambda home, count=count: compare_answers(home, count, first))


def within(closed: int, opened: int, work: Callable[[Home], None]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        home_of(Path(folder, "home"), closed, opened) as home,
    ):
        work(home)


def compare_ticks(home: Home) -> None:
    count = len(os.listdir(home.local_root / "runs"))
    spent = [command(home, "tick", "--json") for _ in range(3)]
    times = ", ".join(f"{one.seconds:.1f} s (CPU {one.processor_s:.1f} s)" for one in spent)
    print(f"tick, {count} open runs: {times}", flush=True)


def compare_answers(home: Home, count: int, first: dict[str, float]) -> None:
    command(home, "tick")
    for name, arguments in _COMMANDS.items():
        spent = min((command(home, *arguments) for _ in range(3)), key=lambda one: one.processor_s)
        times = f"{spent.seconds:.2f} s, CPU {spent.processor_s:.2f} s"
        report(f"{name}, {count} ended runs", times, spent.processor_s, first, name)
    for name, given in (("list_runs", {}), ("get_run", {"run_id": "small"})):
        taken = asyncio.run(call_s(home, name, given))
        report(f"{name}, {count} ended runs", f"{taken * 1e3:.1f} ms", taken, first, name)


def report(what: str, words: str, value: float, first: dict[str, float], key: str) -> None:
    ratio = value / first.setdefault(key, value)
    print(f"{what}: {words} ({ratio:.2f} x the fewest)", flush=True)


def command(home: Home, *arguments: str) -> Spent:
    before, began = processor_s(), time.perf_counter()
    subprocess.run(
        [*_TRAINMASTER, *arguments],
        env={**os.environ, "TRAINMASTER_HOME": str(home.root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return Spent(time.perf_counter() - began, processor_s() - before)


def processor_s() -> float:
    """Of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def call_s(home: Home, tool: str, arguments: dict[str, str]) -> float:
    """The median seconds of a call to a server of its own."""
    server = StdioServerParameters(
        command=_TRAINMASTER[0],
        args=[*_TRAINMASTER[1:], "mcp"],
        env={**os.environ, "TRAINMASTER_HOME": str(home.root)},
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
    main()
